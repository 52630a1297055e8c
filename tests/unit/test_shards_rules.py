"""The rules of a metadata shard: every check in its order, with its code, name and message."""

import gzip
import itertools
import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from chainlake.demo import comet as demo
from chainlake.errors import BadInput
from chainlake.shards import registry as registry_of
from chainlake.shards.build import create_stream, set_last_miniblocks, submittable, update_placement
from chainlake.shards.checks import check, check_tx, is_valid, prepare_proposal, process_proposal
from chainlake.shards.codec import encode
from chainlake.shards.codes import Code, Refused
from chainlake.shards.fold import finalize_block
from chainlake.shards.placement import CONTENT_LENGTHS, chain_id_of, is_well_formed, shard_of, shard_of_chain
from chainlake.shards.registry import NodeRecord, NodeRegistry, read_registry
from chainlake.shards.rules import Block, check_height, resolve_nodes
from chainlake.shards.state import StreamState, metadata_of, placeholder_app_hash, value_of
from chainlake.shards.transactions import (
    CreateStreamTx,
    MiniblockUpdate,
    SetStreamLastMiniblockBatchTx,
    StreamMetadata,
    Transaction,
    UpdateStreamNodesAndReplicationTx,
)
from tests.unit.shards_making import LATE, NODES, REGISTRY, STRANGER, Chain, advanced, created, hash_of, next_of, space

GOOD = StreamMetadata(space("a"), hash_of("a 0"), 0, tuple(NODES[:2]), 2)
UPDATE = next_of("a", 1)


def batch(*updates: MiniblockUpdate) -> SetStreamLastMiniblockBatchTx:
    return SetStreamLastMiniblockBatchTx(updates)


def move(nodes: tuple[bytes, ...] = (), factor: int = 0, stream_id: bytes | None = None) -> UpdateStreamNodesAndReplicationTx:
    return UpdateStreamNodesAndReplicationTx(space("a") if stream_id is None else stream_id, nodes, factor)


def test_codes_have_the_numbers_and_names_of_the_protocol() -> None:
    assert {code.name: int(code) for code in Code} == {
        **{"OK": 0, "UNKNOWN": 2, "INVALID_ARGUMENT": 3, "NOT_FOUND": 5, "ALREADY_EXISTS": 6, "FAILED_PRECONDITION": 9},
        **{"INTERNAL": 13, "BAD_STREAM_ID": 18, "BAD_PREV_MINIBLOCK_HASH": 24, "BAD_BLOCK_NUMBER": 40, "UNKNOWN_NODE": 46},
    }


BAD_NODES = (b"\x01" * 19, b"\x01" * 20)
STATELESS: list[tuple[Transaction, str]] = [
    (CreateStreamTx(), "stream metadata missing"),
    (CreateStreamTx(StreamMetadata()), "stream_id must be 32 bytes"),
    (CreateStreamTx(StreamMetadata(space("a"))), "last_miniblock_hash must be 32 bytes"),
    (CreateStreamTx(StreamMetadata(space("a"), bytes(32), -1)), "last_miniblock_num must be >= 0"),
    (CreateStreamTx(StreamMetadata(space("a"), bytes(32))), "nodes required"),
    (CreateStreamTx(StreamMetadata(space("a"), bytes(32), 0, BAD_NODES)), "node address must be 20 bytes"),
    (CreateStreamTx(GOOD._replace(replication_factor=0)), "replication_factor must be > 0"),
    (CreateStreamTx(GOOD._replace(replication_factor=3)), "replication_factor cannot exceed number of nodes"),
    (batch(), "miniblocks missing"),
    (batch(MiniblockUpdate()), "stream_id must be 32 bytes"),
    (batch(UPDATE, UPDATE._replace(stream_id=b"\x10")), "stream_id must be 32 bytes"),
    (batch(UPDATE._replace(prev_miniblock_hash=b"", last_miniblock_num=0)), "hashes must be 32 bytes"),
    (batch(UPDATE, UPDATE._replace(last_miniblock_hash=bytes(33))), "hashes must be 32 bytes"),
    (batch(UPDATE._replace(last_miniblock_num=0)), "last_miniblock_num must be > 0"),
    (batch(UPDATE, UPDATE._replace(last_miniblock_num=-5)), "last_miniblock_num must be > 0"),
    (move(stream_id=b""), "stream_id must be 32 bytes"),
    (move(), "nothing to update"),
    (move(BAD_NODES, 9), "node address must be 20 bytes"),
    (move(tuple(NODES[:2]), 3), "replication_factor cannot exceed number of nodes"),
]


@pytest.mark.parametrize(("transaction", "message"), STATELESS)
def test_stateless_checks_refuse_with_the_first_broken_rule(transaction: Transaction, message: str) -> None:
    with pytest.raises(Refused) as refused:
        check_tx(encode(transaction))
    assert (refused.value.code, str(refused.value)) == (Code.INVALID_ARGUMENT, message)
    with pytest.raises(Refused, match=message):
        submittable(transaction)
    chain = Chain()
    (result,) = chain.block(encode(transaction)).results
    assert (result.code, result.log, result.message, result.events) == (3, "INVALID_ARGUMENT", message, ())
    assert not chain.streams


@pytest.mark.parametrize(
    ("data", "message"), [(b"\xff\xff\xff", "unable to decode metadata tx"), (b"", "missing op"), (b"\x78\x01", "missing op")]
)
def test_bytes_that_are_no_transaction_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(Refused) as refused:
        check_tx(data)
    assert (refused.value.code, refused.value.message) == (3, message)
    assert Chain().codes(data) == [3]


def test_an_undecodable_transaction_says_why_behind_its_message() -> None:
    with pytest.raises(Refused) as refused:
        check_tx(b"\x0a\x05")
    assert str(refused.value.__cause__) == "not protobuf: field 1 claims 5 bytes, 0 are left"
    back = pickle.loads(pickle.dumps(refused.value))
    assert (back.code, str(back)) == (3, "unable to decode metadata tx")


def test_what_is_right_passes() -> None:
    for transaction in (CreateStreamTx(GOOD), batch(UPDATE), move(tuple(NODES[:1])), move((), 7), move(tuple(NODES), 5)):
        check(transaction)
        assert check_tx(encode(transaction)) == transaction


@pytest.mark.parametrize("kind", sorted(CONTENT_LENGTHS))
def test_stream_ids_end_in_the_zeros_of_their_type(kind: int) -> None:
    length = {0x10: 21, 0xA8: 21, 0xA5: 21, 0xA1: 21, 0xAD: 21, 0xDD: 9}.get(kind, 32)
    full = (bytes([kind]) + b"\xff" * (length - 1)).ljust(32, b"\0")
    assert is_well_formed(full) and is_well_formed(bytes([kind]).ljust(32, b"\0"))
    assert length == 32 or not is_well_formed(full[:length] + b"\x01" + full[length + 1 :])
    assert length == 32 or not is_well_formed(full[:-1] + b"\x01")
    assert not is_well_formed(full[:-1]) and not is_well_formed(full + b"\0")


def test_other_types_of_stream_ids_do_not_exist() -> None:
    known = {kind for kind in range(256) if is_well_formed(bytes([kind]).ljust(32, b"\0"))}
    assert known == {0x10, 0x20, 0x88, 0x77, 0xFF, 0xA8, 0xA5, 0xA1, 0xAD, 0xDD}
    assert not is_well_formed(b"")


def test_create_and_read_back_with_the_order_of_nodes_kept() -> None:
    chain = Chain()
    block = chain.block(created("a", [NODES[3], NODES[0], NODES[2]], 2))
    assert [(one.code, one.log, one.events) for one in block.results] == [(0, "OK", ())]
    state = chain.streams[space("a")]
    assert state == StreamState(space("a"), hash_of("a 0"), 0, (13, 10, 12), 2, False, created_height=1, updated_height=1)
    assert metadata_of(state, REGISTRY).nodes == (NODES[3], NODES[0], NODES[2])


def test_a_stream_may_be_created_sealed_and_with_any_number() -> None:
    chain = Chain()
    assert chain.codes(created("a", sealed=True), created("b", num=41)) == [0, 0]
    assert chain.events(advanced("a", 1), advanced("b", 42)) == [("mberr", "stream is sealed"), ("mbok", None)]


def test_a_duplicate_fails_at_the_next_height_and_in_the_same_block() -> None:
    chain = Chain()
    assert chain.codes(created("a", factor=1), created("a", factor=2)) == [0, 6]
    assert chain.streams[space("a")].replication_factor == 1
    block = chain.block(created("a"))
    assert [(one.code, one.log, one.message) for one in block.results] == [(6, "ALREADY_EXISTS", "stream already exists")]
    assert not block.changed


def test_create_checks_id_then_nodes_then_existence() -> None:
    chain = Chain()
    chain.block(created("a"))
    bad_id = b"\x11" + space("a")[1:]
    duplicate = (NODES[0], NODES[0])
    wanted: list[tuple[StreamMetadata, str]] = [
        (GOOD._replace(stream_id=bad_id, nodes=(STRANGER, STRANGER)), "BAD_STREAM_ID"),
        (GOOD._replace(nodes=(STRANGER, NODES[0])), "UNKNOWN_NODE"),
        (GOOD._replace(nodes=duplicate), "INVALID_ARGUMENT"),
        (GOOD, "ALREADY_EXISTS"),
    ]
    results = chain.block(*(encode(CreateStreamTx(stream)) for stream, _ in wanted)).results
    assert [one.log for one in results] == [log for _, log in wanted]
    assert [one.code for one in results] == [18, 46, 3, 6]
    assert results[2].message == "node list cannot contain duplicates"


def test_nodes_are_looked_at_one_by_one() -> None:
    block = Block(1, REGISTRY)
    with pytest.raises(Refused, match="duplicates"):
        resolve_nodes([NODES[0], NODES[0], STRANGER], block)
    with pytest.raises(Refused, match="not registered"):
        resolve_nodes([NODES[0], STRANGER, STRANGER], block)
    assert resolve_nodes([], block) == ()


def test_a_node_counts_from_its_height_on() -> None:
    chain = Chain()
    assert [chain.codes(created(f"s{height}", [LATE]))[0] for height in range(1, 7)] == [46, 46, 46, 46, 0, 0]


def test_miniblocks_advance_and_seal() -> None:
    chain = Chain()
    chain.block(created("a"), created("b"))
    block = chain.block(set_last_miniblocks([next_of("a", 1), next_of("b", 1, sealed=True)]))
    (result,) = block.results
    assert (result.code, result.log) == (0, "OK")
    ok = [("sid", space("a").hex()), ("n", "1"), ("h", hash_of("a 1").hex())]
    sealed = [("sid", space("b").hex()), ("n", "1"), ("h", hash_of("b 1").hex()), ("sealed", "true")]
    assert [(event.type, list(event.attributes)) for event in result.events] == [("mbok", ok), ("mbok", sealed)]
    a, b = chain.streams[space("a")], chain.streams[space("b")]
    assert (a.last_miniblock_num, a.last_miniblock_hash, a.sealed) == (1, hash_of("a 1"), False)
    assert (b.last_miniblock_num, b.sealed, b.created_height, b.updated_height) == (1, True, 1, 2)
    assert chain.events(advanced("b", 2)) == [("mberr", "stream is sealed")]


def test_miniblock_errors_in_their_order_and_what_their_events_say() -> None:
    chain = Chain()
    chain.block(created("a"), created("sealed", sealed=True))
    bad_id = UPDATE._replace(stream_id=space("a")[:-1] + b"\x01")
    updates = [
        bad_id,
        next_of("nobody", 1),
        next_of("a", 1),
        next_of("a", 7, prev="stale"),
        next_of("sealed", 9, prev="stale"),
    ]
    (result,) = chain.block(set_last_miniblocks(updates)).results
    assert result.code == 0
    said = [(event.type, *(dict(event.attributes).get(key) for key in ("code", "name", "msg"))) for event in result.events]
    assert said == [
        ("mberr", "18", "BAD_STREAM_ID", "can't parse stream id"),
        ("mberr", "5", "NOT_FOUND", "stream not found"),
        ("mbok", None, None, None),
        ("mberr", "9", "FAILED_PRECONDITION", "can't update miniblock twice in the same block"),
        ("mberr", "9", "FAILED_PRECONDITION", "stream is sealed"),
    ]
    assert [key for key, _ in result.events[0].attributes] == ["sid", "code", "name", "msg"]
    assert dict(result.events[0].attributes)["sid"] == "0" * 64
    assert dict(result.events[1].attributes)["sid"] == space("nobody").hex()


def test_stale_prev_hash_comes_before_a_wrong_number() -> None:
    chain = Chain()
    chain.block(created("a"))
    (result,) = chain.block(set_last_miniblocks([next_of("a", 5, prev="stale"), next_of("a", 2, prev="a 0")])).results
    said = [tuple(dict(event.attributes)[key] for key in ("code", "name", "msg")) for event in result.events]
    assert said == [
        ("24", "BAD_PREV_MINIBLOCK_HASH", "prev_miniblock_hash mismatch"),
        ("40", "BAD_BLOCK_NUMBER", "last_miniblock_num must increase by 1"),
    ]


def test_only_a_successful_update_stands_in_the_way_of_the_next() -> None:
    chain = Chain()
    chain.block(created("a"))
    assert chain.events(advanced("a", 2, prev="a 0"), advanced("a", 1), advanced("a", 1)) == [
        ("mberr", "last_miniblock_num must increase by 1"),
        ("mbok", None),
        ("mberr", "can't update miniblock twice in the same block"),
    ]


@pytest.mark.parametrize("apart", [False, True])
def test_of_two_chained_updates_in_a_block_the_first_holds(apart: bool) -> None:
    chain = Chain()
    chain.block(created("a"))
    both = [next_of("a", 1), next_of("a", 2)]
    sent = [set_last_miniblocks([one]) for one in both] if apart else [set_last_miniblocks(both)]
    assert [kind for kind, _ in chain.events(*sent)] == ["mbok", "mberr"]
    assert chain.streams[space("a")].last_miniblock_hash == hash_of("a 1")
    assert chain.events(advanced("a", 2)) == [("mbok", None)]


def test_a_stream_cannot_be_updated_in_the_block_that_creates_it() -> None:
    chain = Chain()
    block = chain.block(created("a"), advanced("a", 1), update_placement(space("a"), NODES[2:4]))
    assert [one.code for one in block.results] == [0, 0, 5]
    assert [event.type for event in block.results[1].events] == ["mberr"]
    assert block.results[2].log == "NOT_FOUND"


def test_all_three_ops_in_one_block() -> None:
    chain = Chain()
    chain.block(created("a"))
    block = chain.block(created("b"), advanced("a", 1), update_placement(space("a"), [NODES[4]]))
    assert [one.code for one in block.results] == [0, 0, 0]
    a = chain.streams[space("a")]
    assert (a.last_miniblock_num, a.nodes, a.replication_factor, a.updated_height) == (1, (14,), 1, 2)
    assert set(block.changed) == {space("a"), space("b")}


@pytest.mark.parametrize("sealed", [False, True])
def test_a_miniblock_and_a_move_go_together_in_either_order(sealed: bool) -> None:
    both = [advanced("a", 1, sealed=sealed), update_placement(space("a"), [NODES[4]])]
    for sent in (both, both[::-1]):
        chain = Chain()
        chain.block(created("a"))
        assert [one.code for one in chain.block(*sent).results] == [0, 0]
        a = chain.streams[space("a")]
        assert (a.last_miniblock_num, a.last_miniblock_hash, a.sealed) == (1, hash_of("a 1"), sealed)
        assert (a.nodes, a.replication_factor, a.created_height, a.updated_height) == ((14,), 1, 1, 2)


def test_placement_of_a_sealed_stream_changes() -> None:
    chain = Chain()
    chain.block(created("a", sealed=True))
    assert chain.codes(update_placement(space("a"), NODES[2:5], 3)) == [0]
    a = chain.streams[space("a")]
    assert (a.nodes, a.replication_factor, a.sealed) == ((12, 13, 14), 3, True)


def test_update_checks_id_nodes_existence_repetition_and_factor_in_this_order() -> None:
    chain = Chain()
    chain.block(created("a", NODES[:3], 2))
    bad_id = b"\x01" + space("a")[1:]
    wanted = [
        (move((STRANGER, STRANGER), 0, bad_id), "BAD_STREAM_ID"),
        (move((STRANGER,), 0, space("nobody")), "UNKNOWN_NODE"),
        (move((NODES[0], NODES[0]), 0, space("nobody")), "INVALID_ARGUMENT"),
        (move((NODES[0],), 0, space("nobody")), "NOT_FOUND"),
        (move((NODES[0],)), "INVALID_ARGUMENT"),  # a factor of 2 stays, on one node
        (move((), 4), "INVALID_ARGUMENT"),  # three nodes stay
        (move((), 3), "OK"),
        (move((), 9), "FAILED_PRECONDITION"),
    ]
    results = chain.block(*(encode(transaction) for transaction, _ in wanted)).results
    assert [one.log for one in results] == [log for _, log in wanted]
    assert [one.message for one in results[4:6]] == ["replication_factor cannot exceed number of nodes"] * 2
    assert chain.streams[space("a")].nodes == (10, 11, 12)
    assert chain.streams[space("a")].replication_factor == 3


def test_blocks_must_follow_each_other() -> None:
    for height in (0, 2, 4, 9):
        with pytest.raises(Refused) as refused:
            finalize_block({}, 2, height, [], REGISTRY) if height != 2 else check_height(2, 2)
        assert (refused.value.code, str(refused.value)) == (9, "height mismatch")
    check_height(2, 3)
    check_height(None, 115)


def test_proposals_keep_valid_transactions_in_order_until_one_does_not_fit() -> None:
    a, b, c = created("a"), created("b", NODES[:4]), created("c")
    assert prepare_proposal([a, b"\xff", b, b"", c], 1 << 20) == [a, b, c]
    assert prepare_proposal([a, b, c], len(a) + len(c)) == [a], "what is larger ends the proposal, though a later one would fit"
    assert prepare_proposal([a, b, c], len(a) + len(b) + len(c)) == [a, b, c]
    assert prepare_proposal([a], len(a) - 1) == []
    assert process_proposal([a, b, c]) and process_proposal([])
    assert not process_proposal([a, b"\xff", c])
    assert not is_valid(b"\xff") and is_valid(a)


@settings(max_examples=50)
@given(
    st.lists(st.sampled_from([created("a"), created("b", NODES), advanced("a", 1), b"", b"\xff", b"\x0a\x00"])),
    st.integers(0, 900),
)
def test_a_proposal_is_a_valid_prefix_that_fits(sent: list[bytes], limit: int) -> None:
    found = prepare_proposal(sent, limit)
    valid = [one for one in sent if is_valid(one)]
    assert found == valid[: len(found)] and sum(map(len, found)) <= limit and process_proposal(found)
    assert found == valid or sum(map(len, valid[: len(found) + 1])) > limit


def test_streams_are_placed_by_xxhash64() -> None:
    hashes = {one: xxhash.xxh64_intdigest(one) for one in (space(str(number)) for number in range(100))}
    assert {one: shard_of(one) for one in hashes} == {one: found % 1024 for one, found in hashes.items()}
    assert any(found & 1024 for found in hashes.values())
    assert shard_of(space("a"), 0) == 0 and shard_of(space("a"), 7) == shard_of(space("a")) & 7
    assert xxhash.xxh64_intdigest(b"") == 0xEF46DB3751D8E999 and shard_of(b"") == 0x199
    assert chain_id_of(255) == "metadata-shard-00000000000000ff"
    assert shard_of_chain(chain_id_of(1023)) == 1023
    assert shard_of_chain("test-chain-0XTihP") is None
    with pytest.raises(BadInput, match="-1 is not a shard"):
        chain_id_of(-1)


def test_the_value_under_the_root_holds_nodes_factor_and_seal_but_no_heights() -> None:
    state = StreamState(space("a"), hash_of("h"), 7, (11, 10), 2, True, 3, 9)
    value = value_of(state, REGISTRY)
    expected = f"0a20{space('a').hex()}1220{hash_of('h').hex()}18072214{NODES[1].hex()}2214{NODES[0].hex()}28024001"
    assert value.hex() == expected
    assert value == value_of(state._replace(created_height=1, updated_height=1), REGISTRY)
    others = [state._replace(nodes=(10, 11)), state._replace(replication_factor=1), state._replace(sealed=False)]
    assert len({value, *(value_of(other, REGISTRY) for other in others)}) == 4


def test_the_placeholder_is_the_hash_of_the_height() -> None:
    assert placeholder_app_hash(114).hex().upper() == "284F10C5014D0C4454DA93A809D44ABF941DB7BE78C28B975B776F355B718E99"


def line(address: bytes = NODES[0], index: object = 1, height: object = 1) -> str:
    return json.dumps({"address": "0x" + address.hex(), "permanent_index": index, "from_height": height})


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_registry_is_read_from_json_lines(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "registry.jsonl"
    path.write_bytes(pack(f"{line(NODES[1], 7, 5)}\n\n{line(NODES[0], 3, 0)}\n{line(NODES[1], 7, 2)}".encode()))
    registry = read_registry(str(path))
    assert registry.records == [NodeRecord(NODES[0], 3, 0), NodeRecord(NODES[1], 7, 2)]
    assert [registry.index_of(NODES[1], height) for height in (1, 2, 3)] == [None, 7, 7]
    assert registry.index_of(STRANGER, 9) is None
    assert registry.address_of(7) == NODES[1]
    with pytest.raises(BadInput, match="no node has permanent index 8"):
        registry.address_of(8)


def test_lists_of_addresses_are_kept_in_bounds_and_stay_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_of, "MANY_LISTS", 3)
    registry = NodeRegistry(REGISTRY.records)
    for indexes in [*itertools.permutations((10, 11, 12)), (11, 10, 12), ()]:
        assert registry.addresses_of(indexes) == tuple(map(registry.address_of, indexes))
        assert len(registry._lists) <= 3
    with pytest.raises(BadInput, match="no node has permanent index 8"):
        registry.addresses_of((10, 8))


def test_the_registry_of_the_demo_is_read(tmp_path: Path) -> None:
    _, path = demo.write(tmp_path, 1)
    assert [record.address for record in read_registry(str(path)).records] == demo.node_addresses()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (line(index=0), "line 1: permanent_index is 0: a whole number from 1"),
        (line() + "\n" + line(NODES[1], index=True), "line 2: permanent_index is True"),
        (line(height=-1), "from_height is -1"),
        (line(height="1"), "from_height is '1'"),
        (line(b"\x01" * 19), "address is '0x0101"),
        ("[]", "is not a node"),
        ("{", "line 1: not JSON"),
        (line() + "\n" + line(NODES[1]), "permanent index 1 is given to 0xa0a0"),
        (line() + "\n" + line(index=2), "has permanent indexes 1 and 2"),
    ],
)
def test_a_wrong_registry_is_refused_in_one_line(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "registry.jsonl"
    path.write_text(text)
    with pytest.raises(BadInput) as error:
        read_registry(str(path))
    assert reason in str(error.value) and "\n" not in str(error.value)


def test_a_missing_registry_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"nowhere.jsonl cannot be read: .*check the option registry"):
        read_registry(str(tmp_path / "nowhere.jsonl"))


def test_builders_give_bytes_that_check_tx_takes() -> None:
    assert check_tx(create_stream(GOOD.stream_id, GOOD.last_miniblock_hash, GOOD.nodes, 2)) == CreateStreamTx(GOOD)
    assert check_tx(set_last_miniblocks([UPDATE])) == batch(UPDATE) == check_tx(advanced("a", 1))
    assert check_tx(update_placement(space("a"), replication_factor=2)) == move((), 2)
    with pytest.raises(Refused, match="nothing to update"):
        update_placement(space("a"))
