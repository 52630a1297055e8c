"""Events: how they are read, which logs are theirs, what they say; hostile data gives a reason, quickly."""

import time
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import eth_abi
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainlake.errors import BadInput
from chainlake.logs.abi import Event, Reason, Registry, decode, default_registry, parse_event, text_of, topic0
from chainlake.logs.abi_columns import DECODED, decode_columns
from chainlake.logs.abi_types import layout_error

ERC20 = parse_event("Transfer(address indexed from, address indexed to, uint256 value)")
ERC721 = parse_event("Transfer(address indexed from, address indexed to, uint256 indexed tokenId)")
ALICE, BOB, TOKEN = b"\xaa" * 20, b"\xbb" * 20, b"\xcc" * 20
Log = tuple[bytes, Sequence[bytes], bytes]


def word(value: int | bytes) -> bytes:
    return value.to_bytes(32, "big") if isinstance(value, int) else value.rjust(32, b"\0")


def transfer(value: int = 5, data: bytes | None = None, first: bytes = word(ALICE)) -> Log:
    return TOKEN, [topic0(ERC20), first, word(BOB)], word(value) if data is None else data


def columns(logs: Sequence[Log], registry: Registry) -> list[dict[str, Any]]:
    made: dict[str, Any] = {
        f"topic{at}": pa.array([topics[at] if at < len(topics) else None for _, topics, _ in logs], pa.binary())
        for at in range(4)
    }
    made |= {"address": pa.array([address for address, _, _ in logs], pa.binary())}
    made |= {"topic_count": pa.array([len(topics) for _, topics, _ in logs], pa.int32())}
    made |= {"data": pa.array([data for _, _, data in logs], pa.binary())}
    found = decode_columns(pa.table(made), registry)
    assert found.schema.equals(DECODED)
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def same_both_ways(log: Log, registry: Registry) -> dict[str, str] | Reason:
    """Decodes alone and as a column, which must agree."""
    row, alone = columns([log], registry)[0], registry.decode(*log)
    if isinstance(alone, Reason):
        assert (row["reason"], row["event"], row["signature"], row["args"]) == (alone.text, None, None, None)
        return alone
    event, values = alone
    assert (row["reason"], row["event"], row["signature"], dict(row["args"])) == (None, event.name, event.text, values)
    return values


@pytest.mark.parametrize(
    ("text", "digest"),
    [
        ("Transfer(address indexed from, address indexed to, uint256 value)", "ddf252ad1be2c89b69c2b068fc378daa"),
        ("event Approval(address owner,address indexed, uint)", "8c5be1e5ebec7d5bd14f71427d1e84f3"),
        ("Swap(address,address,int,int256,uint160,uint128,int24)", "c42079f94a6350d7e6235f29174924f9"),
        ("OrderFulfilled(bytes32,address,address,address,tuple(uint8 a,address,uint256,uint256)[] offer, "
         "(uint8,address,uint256,uint256,address)[])", "9d9af8e38d66c62e2c12f0225249fd9d"),
    ],
)  # fmt: skip
def test_the_first_topic_is_the_hash_of_name_and_types(text: str, digest: str) -> None:
    assert topic0(parse_event(text)).hex().startswith(digest)


def test_an_event_has_one_canonical_text() -> None:
    event = parse_event("  event Foo ( uint  indexed  a , tuple( int x,address )[2] [] b,bytes )  ")
    assert event.text == "Foo(uint256 indexed a, (int256,address)[2][] b, bytes arg2)"
    assert parse_event(event.text) == event
    assert event.topic_count == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected the name of an event in a signature, found 'its end'"),
        ("Foo", "expected '\\('"),
        ("Foo(uint256", "expected"),
        ("Foo(uint7 a)", "uint8 to uint256 in steps of 8"),
        ("Foo(uint08 a)", "uint8 to uint256 in steps of 8"),
        ("Foo(bytes33 a)", "bytes1 to bytes32"),
        ("Foo(cat a)", "'cat' is not a type"),
        ("Foo(fixed128x18 a)", "is not a type"),
        ("Foo(() a)", "a tuple has at least one member"),
        ("Foo(uint256[0] a)", "at least one item"),
        ("Foo(uint256 a, uint256 a)", "two parameters named a: give each its own name"),
        ("Foo(uint256 a) anonymous", "unexpected 'anonymous' after the event Foo"),
        ("Foo(uint256 a;)", "unexpected ';\\)' in a signature"),
        ("Foo(uint256 a,)", "expected a type in a signature, found '\\)'"),
        ("Foo(uint8 indexed,uint8 indexed,uint8 indexed,uint8 indexed)", "more than 3 indexed"),
        (f"Foo({','.join(['uint8'] * 65)})", "65 parameters: at most 64"),
        (f"Foo(uint8{'[]' * 9} a)", "nested more than 8 deep"),
        (f"Foo({'(' * 500}uint8{')' * 500} a)", "nested more than 8 deep"),
        (f"Foo({'x' * 5_000})", "5005 characters is too long"),
    ],
)
def test_what_is_not_an_event_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message) as raised:
        parse_event(text)
    assert "\n" not in str(raised.value)


@given(st.text(alphabet="abuint256address[](), _$indexed\n0x", max_size=60))
def test_any_text_is_an_event_or_bad_input(text: str) -> None:
    try:
        event = parse_event(text)
    except BadInput:
        return
    assert parse_event(event.text) == event


def test_values_are_canonical_text() -> None:
    event = parse_event("All(address a, uint8 b, int8 c, bool d, bytes3 e, bytes f, string g, (uint256,bool)[] h, address[2] i)")
    data = eth_abi.encode(
        ["address", "uint8", "int8", "bool", "bytes3", "bytes", "string", "(uint256,bool)[]", "address[2]"],
        ["0x" + "Ab" * 20, 7, -3, True, b"\1\2\3", b"\xff", "ü\"'", [(2**255, False)], ["0x" + "01" * 20, "0x" + "02" * 20]],
    )
    assert same_both_ways((TOKEN, [topic0(event)], data), Registry([event])) == {
        "a": "0x" + "ab" * 20,
        "b": "7",
        "c": "-3",
        "d": "true",
        "e": "0x010203",
        "f": "0xff",
        "g": "ü\"'",
        "h": f'[["{2**255}",false]]',
        "i": f'["0x{"01" * 20}","0x{"02" * 20}"]',
    }


def test_indexed_strings_and_arrays_are_hashes() -> None:
    event = parse_event("Named(string indexed name, uint256[] indexed ids, bytes4 indexed id)")
    topics = [topic0(event), b"\x01" * 32, b"\x02" * 32, b"\x03" * 4 + bytes(28)]
    found = same_both_ways((TOKEN, topics, b""), Registry([event]))
    assert found == {"name": "0x" + "01" * 32, "ids": "0x" + "02" * 32, "id": "0x03030303"}


def test_erc20_and_erc721_transfers_are_told_apart_by_their_topics() -> None:
    registry = Registry([ERC20, ERC721])
    nft = (TOKEN, [topic0(ERC20), word(ALICE), word(BOB), word(9)], b"")
    assert same_both_ways(transfer(), registry) == {"from": "0x" + "aa" * 20, "to": "0x" + "bb" * 20, "value": "5"}
    assert same_both_ways(nft, registry) == {"from": "0x" + "aa" * 20, "to": "0x" + "bb" * 20, "tokenId": "9"}


def test_transfers_have_columns_of_their_own() -> None:
    registry = default_registry()
    deposit = registry.candidates(topic0(parse_event("Deposit(address,uint256)")), 2)[0]
    swap = parse_event("Swap(address indexed a, uint256 b, uint256 c, uint256 d, uint256 e, address indexed to)")
    rows = columns(
        [
            transfer(10**38 - 1),
            transfer(10**38),
            transfer(2**200),
            (TOKEN, [topic0(ERC20), word(ALICE), word(BOB), word(9)], b""),
            (TOKEN, [topic0(deposit), word(BOB)], word(7)),
            (TOKEN, [topic0(swap), word(ALICE), word(BOB)], word(1) * 4),
        ],
        registry,
    )
    assert [(row["from_address"], row["to_address"], row["value"]) for row in rows] == [
        (ALICE, BOB, Decimal(10**38 - 1)),
        (ALICE, BOB, None),
        (ALICE, BOB, None),
        (ALICE, BOB, None),
        (None, BOB, Decimal(7)),
        (None, None, None),
    ]
    assert [dict(row["args"])["value"] for row in rows[:3]] == [str(10**38 - 1), str(10**38), str(2**200)]


def test_an_event_with_dynamic_data_has_them_too() -> None:
    event = parse_event("Sent(address indexed from, bytes note, address to, uint256 amount)")
    data = eth_abi.encode(["bytes", "address", "uint256"], [b"x" * 40, "0x" + BOB.hex(), 12])
    row = columns([(TOKEN, [topic0(event), word(ALICE)], data)], Registry([event]))[0]
    assert (row["from_address"], row["to_address"], row["value"]) == (ALICE, BOB, Decimal(12))


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ((TOKEN, [], b""), "no topics: nothing says which event it is"),
        ((TOKEN, [b"\1" * 32], b""), "the event is not registered"),
        ((TOKEN, [topic0(ERC20), b""], b""), "Transfer(address,address,uint256) is not registered with 1 indexed parameters"),
        (transfer(data=b""), "data has 0 bytes, Transfer(address,address,uint256) has 32 there"),
        (transfer(data=bytes(31)), "data has 31 bytes, Transfer(address,address,uint256) has 32 there"),
        (transfer(data=bytes(64)), "data has 64 bytes, Transfer(address,address,uint256) has 32 there"),
        (transfer(first=b"\1" + word(ALICE)[1:]), "from: the word is not a clean address"),
        (transfer(first=ALICE), "a topic is not 32 bytes long"),
    ],
)  # fmt: skip
def test_logs_that_do_not_fit_say_why(log: Log, reason: str) -> None:
    assert same_both_ways(log, Registry([ERC20, ERC721])) == Reason(reason)


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        ("bool", word(2)),
        ("bool", word(1 << 255)),
        ("address", word(1 << 160)),
        ("uint8", word(256)),
        ("uint248", word(1 << 248)),
        ("int8", word(128)),
        ("int8", b"\xff" * 31 + b"\x7f"),
        ("int248", b"\x01" + bytes(31)),
        ("bytes4", bytes(4) + b"\x01" + bytes(27)),
        ("bytes31", bytes(31) + b"\x01"),
        ("function", bytes(24) + b"\x01" + bytes(7)),
    ],
)
@pytest.mark.parametrize("indexed", [True, False])
def test_dirty_padding_gives_a_reason(kind: str, bad: bytes, indexed: bool) -> None:
    event = parse_event(f"Foo({kind}{' indexed' if indexed else ''} x)")
    log = (TOKEN, [topic0(event), bad], b"") if indexed else (TOKEN, [topic0(event)], bad)
    assert same_both_ways(log, Registry([event])) == Reason(f"x: the word is not a clean {kind}")


def test_dirty_padding_gives_a_reason_in_dynamic_data_too() -> None:
    event = parse_event("Foo(string text, bool flag)")
    good = eth_abi.encode(["string", "bool"], ["abc", True])
    for dirty in (good[:32] + word(3) + good[64:], good[:-1] + b"\1"):
        found = same_both_ways((TOKEN, [topic0(event)], dirty), Registry([event]))
        assert isinstance(found, Reason) and found.text.startswith("data does not fit Foo(string,bool): ")


def test_a_string_that_is_not_utf8_gives_a_reason() -> None:
    event = parse_event("Foo(string text)")
    data = eth_abi.encode(["bytes"], [b"\xff\xfe"])
    assert same_both_ways((TOKEN, [topic0(event)], data), Registry([event])) == Reason("a string is not UTF-8")


@pytest.mark.parametrize("huge", [1 << 16, 1 << 31, 1 << 63, 1 << 64, (1 << 256) - 1])
@pytest.mark.parametrize("kind", ["bytes", "string", "uint256[]", "bytes[]", "uint256[][]", "(uint256[],bytes)", "bytes32[4][]"])
def test_huge_offsets_and_lengths_give_a_reason_at_once(kind: str, huge: int) -> None:
    event = parse_event(f"Foo({kind} x)")
    began = time.monotonic()
    nested = word(32) + word(1) + word(huge) if kind != "uint256[]" else b""
    for data in (word(huge), word(32) + word(huge), nested, word(32) + word(huge) * 40):
        found = same_both_ways((TOKEN, [topic0(event)], data), Registry([event]))
        assert isinstance(found, Reason) and "\n" not in found.text and len(found.text) < 160
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("depth", [2, 3, 6, 8])
def test_arrays_that_point_at_themselves_do_not_explode(depth: int) -> None:
    """Each level lists the next one hundreds of times: millions of items in 20 kB, were they all followed."""
    event = parse_event(f"Foo(uint256{'[]' * depth} x)")
    width = 300
    levels = [word(width) + b"".join(word(32 * width) for _ in range(width)) for _ in range(depth - 1)]
    data = word(32) + b"".join(levels) + word(width) + bytes(32 * width)
    began = time.monotonic()
    found = same_both_ways((TOKEN, [topic0(event)], data), Registry([event]))
    assert found == Reason("data points to the same parts over and over")
    assert time.monotonic() - began < 20


def test_a_part_that_two_offsets_share_may_be_read() -> None:
    event = parse_event("Foo(string a, string b)")
    data = word(64) + word(64) + word(2) + b"hi".ljust(32, b"\0")
    assert same_both_ways((TOKEN, [topic0(event)], data), Registry([event])) == {"a": "hi", "b": "hi"}


WORDS: dict[str, st.SearchStrategy[Any]] = {
    "address": st.binary(min_size=20, max_size=20).map(lambda value: "0x" + value.hex()),
    "bool": st.booleans(),
    "bytes32": st.binary(min_size=32, max_size=32),
    "bytes5": st.binary(min_size=5, max_size=5),
    **{f"uint{bits}": st.integers(0, (1 << bits) - 1) for bits in (8, 64, 112, 256)},
    **{f"int{bits}": st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 24, 64, 72, 256)},
}
DYNAMIC: dict[str, st.SearchStrategy[Any]] = {
    "bytes": st.binary(max_size=70),
    "string": st.text(max_size=20),
}
Typed = tuple[str, st.SearchStrategy[Any]]


def compound(items: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    return st.one_of(
        items.map(lambda one: (f"{one[0]}[]", st.lists(one[1], max_size=3))),
        items.map(lambda one: (f"{one[0]}[2]", st.lists(one[1], min_size=2, max_size=2))),
        st.lists(items, min_size=1, max_size=3).map(
            lambda some: (f"({','.join(kind for kind, _ in some)})", st.tuples(*(values for _, values in some)))
        ),
    )


def typed(*tables: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Typed]:
    return st.sampled_from([item for table in tables for item in table.items()])


@st.composite
def emitted(draw: st.DrawFn, kinds: st.SearchStrategy[Typed]) -> tuple[Event, Log, dict[str, str]]:
    """An event with indexed words, the log that a contract emits for some values, and those values as text."""
    indexed = draw(st.lists(typed(WORDS), max_size=3))
    plain = draw(st.lists(kinds, max_size=4))
    topics, in_data = [draw(values) for _, values in indexed], [draw(values) for _, values in plain]
    shown = [f"{kind} indexed t{at}" for at, (kind, _) in enumerate(indexed)] + [f"{k} d{at}" for at, (k, _) in enumerate(plain)]
    event = parse_event(f"Foo({', '.join(shown)})")
    words = [topic0(event), *(eth_abi.encode([kind], [value]) for (kind, _), value in zip(indexed, topics, strict=True))]
    log = TOKEN, words, eth_abi.encode([kind for kind, _ in plain], in_data)
    texts = {f"t{at}": text_of(value) for at, value in enumerate(topics)} | {f"d{at}": text_of(v) for at, v in enumerate(in_data)}
    return event, log, texts


@given(emitted(typed(WORDS)))
def test_words_come_back_as_they_were_encoded(made: tuple[Event, Log, dict[str, str]]) -> None:
    event, log, texts = made
    assert event.is_plain
    assert same_both_ways(log, Registry([event])) == texts


@given(emitted(st.recursive(typed(WORDS, DYNAMIC), compound, max_leaves=4)))
def test_all_types_come_back_as_they_were_encoded(made: tuple[Event, Log, dict[str, str]]) -> None:
    event, log, texts = made
    assert same_both_ways(log, Registry([event])) == texts


@given(emitted(st.recursive(typed(WORDS, DYNAMIC), compound, max_leaves=4)), st.data())
def test_damaged_data_gives_values_or_a_reason_the_same_both_ways(
    made: tuple[Event, Log, dict[str, str]], data: st.DataObject
) -> None:
    event, (address, topics, good), _ = made
    bad = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, max(0, len(bad) - 1)))
        bad[at : at + data.draw(st.integers(0, 33))] = data.draw(st.sampled_from([b"", b"\xff", b"\x20", word(2**255), word(32)]))
    same_both_ways((address, topics, bytes(bad)), Registry([event]))


@given(st.recursive(typed(WORDS, DYNAMIC), compound, max_leaves=4), st.data())
def test_what_passes_the_layout_check_is_read_by_eth_abi_without_surprises(kind: Typed, data: st.DataObject) -> None:
    words = st.sampled_from([word(number) for number in (0, 1, 2, 3, 32, 64, 96, 2**40, 2**255)]) | st.binary(
        min_size=32, max_size=32
    )
    event = parse_event(f"Foo({kind[0]} x)")
    content = b"".join(data.draw(st.lists(words, max_size=12)))
    found = decode(event, [topic0(event)], content)
    if not isinstance(found, Reason):
        assert layout_error((event.parameters[0].type,), content) is None or event.is_plain
        assert found["x"] == text_of(eth_abi.decode([event.parameters[0].type.name], content)[0])


def test_columns_keep_the_order_of_logs_of_different_events() -> None:
    registry = Registry.parse("Transfer(address indexed from, address indexed to, uint256 value)\nNote(string text)\nEmpty()")
    note, empty = registry.events[1], registry.events[2]
    logs = [
        (TOKEN, [topic0(note)], eth_abi.encode(["string"], ["one"])),
        transfer(1),
        (TOKEN, [], b"x"),
        (TOKEN, [topic0(empty)], b""),
        transfer(data=b"short"),
        (TOKEN, [topic0(note)], eth_abi.encode(["string"], ["two"])),
        transfer(2),
    ]
    rows = columns(logs, registry)
    assert [row["event"] for row in rows] == ["Note", "Transfer", None, "Empty", None, "Note", "Transfer"]
    assert [row["args"][-1][1] if row["args"] else row["args"] for row in rows] == ["one", "1", None, [], None, "two", "2"]
    assert [row["value"] for row in rows] == [None, Decimal(1), None, None, None, None, Decimal(2)]


def test_columns_may_be_chunked_sliced_or_empty() -> None:
    logs = [transfer(number) for number in range(6)]
    made = pa.table(
        {
            "address": pa.array([TOKEN] * 6, pa.large_binary()),
            **{f"topic{at}": pa.array([topics[at] for _, topics, _ in logs], pa.binary()) for at in range(3)},
            "topic3": pa.nulls(6, pa.binary()),
            "topic_count": pa.array([3] * 6, pa.int32()),
            "data": pa.array([data for _, _, data in logs], pa.binary()),
        }
    )
    registry = Registry([ERC20])
    chunked = pa.concat_tables([made.slice(3, 3), made.slice(1, 2)])
    assert [int(value) for value in decode_columns(chunked, registry)["value"].to_pylist()] == [3, 4, 5, 1, 2]
    batch = made.to_batches()[0].slice(2, 2)
    assert [int(value) for value in decode_columns(batch, registry)["value"].to_pylist()] == [2, 3]
    empty = decode_columns(made.slice(0, 0), registry)
    assert empty.num_rows == 0 and empty.schema.equals(DECODED)
    unknown = decode_columns(made, Registry([]))
    assert set(unknown["reason"].to_pylist()) == {"the event is not registered"}


def test_an_event_of_one_contract_comes_before_that_of_any() -> None:
    registry = Registry.parse(f"{ERC20.text}\n0x{TOKEN.hex()} Transfer(address indexed a, address indexed b, uint256 c)")
    assert list(same_both_ways(transfer(), registry)) == ["a", "b", "c"]  # type: ignore[call-overload]
    _, topics, data = transfer()
    assert list(same_both_ways((BOB, topics, data), registry)) == ["from", "to", "value"]  # type: ignore[call-overload]
    only = Registry(registry.events[1:])
    assert same_both_ways((BOB, topics, data), only) == Reason(
        "Transfer(address,address,uint256) is registered for other contracts only"
    )


def test_of_two_events_with_the_same_topics_the_one_that_fits_is_taken() -> None:
    registry = Registry.parse(f"{ERC20.text}\nTransfer(address indexed from, address to, uint256 indexed value)")
    log = (TOKEN, [topic0(ERC20), word(ALICE), word(1 << 200)], word(BOB))
    assert same_both_ways(log, registry) == {"from": "0x" + "aa" * 20, "to": "0x" + "bb" * 20, "value": str(1 << 200)}


def test_a_registry_names_the_line_that_is_wrong() -> None:
    with pytest.raises(BadInput, match="line 3 of the events: 'cat' is not a type"):
        Registry.parse("# comment\n\nFoo(cat x) # no such type\n")


def test_the_default_events_are_all_different_and_have_their_well_known_topics() -> None:
    registry = default_registry()
    assert len(registry.events) > 60
    assert len({event.text for event in registry.events}) == len(registry.events)
    known = {"Upgraded": "bc7cd75a", "OwnershipTransferred": "8be0079c", "TransferBatch": "4a39dc06", "Withdrawal": "7fcf532c"}
    found = {event.name: topic0(event).hex()[:8] for event in registry.events}
    assert {name: found[name] for name in known} == known
