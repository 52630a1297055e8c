"""Blocks to transactions: every form that wallets write, every era, and whatever strangers send."""

import hashlib
import random
import sys
from typing import Any

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainlake.cage.decode import decode_block, decode_output, read_block
from chainlake.cage.plutus import Constr, read
from chainlake.cage.transaction import Asset, Redeemer, TxIn
from chainlake.demo import cage
from chainlake.demo.cage_cbor import Plutus, tag
from chainlake.demo.cardano import array, mapping, octets, uint
from chainlake.errors import BadInput

ONE, TWO = TxIn(b"\x01" * 32, 0), TxIn(b"\x02" * 32, 300)
BLOCKS = [made.raw for made in cage.chain(24, forks={})]


def txin(place: TxIn) -> bytes:
    return array(octets(place.tx_id), uint(place.number))


def block(*bodies: bytes, witnesses: list[bytes] | None = None, invalid: bytes = array(), era: int = 7) -> bytes:
    sets = witnesses or [mapping({})] * len(bodies)
    header = array(array(uint(1), uint(2), b"\xf6"), octets(b""))
    return array(uint(era), array(header, array(*bodies), array(*sets), mapping({}), invalid))


def body(**more: bytes) -> bytes:
    parts = {0: array(txin(TWO), txin(ONE)), 1: array(array(octets(b"addr"), uint(5)))}
    return mapping(parts | {int(key[1:]): value for key, value in more.items()})


def test_inputs_outputs_mints_collateral_and_references() -> None:
    policy = b"\x0a" * 28
    assets = b"\xa1" + octets(policy) + b"\xa2" + octets(b"x") + b"\x01" + octets(b"") + b"\x1b" + b"\xff" * 8
    made = mapping(
        {
            0: octets(b"to"),
            1: array(uint(7), assets),
            2: array(uint(1), tag(24, octets(b"\x01"))),
            3: tag(24, octets(b"\x82\x01\x40")),
        }
    )
    outputs = array(
        made,
        array(octets(b"old"), uint(9), octets(b"\x03" * 32)),
        mapping({0: octets(b"h"), 1: uint(1), 2: array(uint(0), octets(b"\x04" * 32))}),
    )
    minted = b"\xa1" + octets(policy) + b"\xa1" + octets(b"x") + b"\x20"
    raw = body(
        k0=tag(258, array(txin(ONE))),
        k1=outputs,
        k9=minted,
        k13=array(txin(TWO)),
        k16=array(octets(b"r"), uint(3)),
        k18=array(txin(ONE)),
    )
    (tx,) = decode_block(block(raw))
    assert tx.tx_id == hashlib.blake2b(raw, digest_size=32).digest()
    assert (tx.inputs, tx.collateral, tx.references, tx.is_valid) == ((ONE,), (TWO,), (ONE,), True)
    first, second, third = tx.outputs
    assert (first.address, first.lovelace, first.datum, first.reference_script, first.raw) == (
        b"to",
        7,
        b"\x01",
        b"\x82\x01\x40",
        made,
    )
    assert first.assets == (Asset(policy, b"x", 1), Asset(policy, b"", 2**64 - 1))
    assert (second.datum_hash, third.datum_hash, second.datum) == (b"\x03" * 32, b"\x04" * 32, None)
    assert tx.mints == (Asset(policy, b"x", -1),)
    assert tx.collateral_return is not None and tx.collateral_return.lovelace == 3


def test_both_forms_of_redeemers_and_of_lists() -> None:
    listed = mapping({5: array(array(uint(0), uint(1), b"\xd8\x79\x80", array(uint(1), uint(1))))})
    mapped = mapping({5: b"\xbf" + array(uint(0), uint(1)) + array(b"\xd8\x79\x80", array(uint(1), uint(1))) + b"\xff"})
    for witness in (listed, mapped):
        (tx,) = decode_block(block(body(k0=b"\x9f" + txin(TWO) + txin(ONE) + b"\xff"), witnesses=[witness]))
        assert tx.redeemers == (Redeemer(0, 1, b"\xd8\x79\x80"),)
        assert tx.inputs == (TWO, ONE), "as serialised; the ledger sorts them"


def test_what_is_given_twice_counts_once_and_the_last_time() -> None:
    units, policy, other = array(uint(1), uint(1)), b"\x0a" * 28, b"\x0b" * 28
    both = ((0, b"\xd8\x79\x80"), (1, b"\x01"), (0, b"\xd8\x7b\x80"))
    listed = array(*(array(uint(0), uint(place), data, units) for place, data in both))
    mapped = b"\xa3" + b"".join(array(uint(0), uint(place)) + array(data, units) for place, data in both)
    for redeemers in (listed, mapped):
        (tx,) = decode_block(block(body(), witnesses=[mapping({5: redeemers})]))
        assert tx.redeemers == (Redeemer(0, 0, b"\xd8\x7b\x80"), Redeemer(0, 1, b"\x01"))
    names = b"\xa2" + octets(b"x") + b"\x01" + octets(b"x") + b"\x02"
    twice = b"\xa3" + octets(policy) + b"\xa1" + octets(b"gone") + b"\x05" + octets(other) + names + octets(policy) + names
    value = array(octets(b"a"), array(uint(5), twice))
    (tx,) = decode_block(block(body(k0=array(txin(ONE), txin(ONE)), k1=array(value), k9=twice)))
    assert tx.mints == tx.outputs[0].assets == (Asset(policy, b"x", 2), Asset(other, b"x", 2))
    assert tx.spends() == (ONE,)


def test_none_of_an_asset_is_no_asset() -> None:
    policy = b"\x0a" * 28
    assets = b"\xa1" + octets(policy) + b"\xa2" + octets(b"x") + b"\x00" + octets(b"y") + b"\x01"
    (tx,) = decode_block(block(body(k1=array(array(octets(b"a"), array(uint(5), assets))))))
    assert tx.outputs[0].assets == (Asset(policy, b"y", 1),)


def test_an_invalid_transaction_spends_its_collateral_and_creates_its_return_after_the_regular_outputs() -> None:
    raw = body(k13=array(txin(ONE)), k16=array(octets(b"r"), uint(3)))
    (tx, other) = decode_block(block(raw, body(), invalid=array(uint(0))))
    assert (tx.spends(), [place for place, _ in tx.creates()]) == ((ONE,), [TxIn(tx.tx_id, 1)])
    assert other.is_valid and other.spends() == (TWO, ONE)


def test_byron_transactions() -> None:
    inner = cbor2.dumps([ONE.tx_id, 4])
    address = array(tag(24, octets(b"payload")), uint(77))
    tx = array(b"\x9f" + array(uint(0), tag(24, octets(inner))) + b"\xff", b"\x9f" + array(address, uint(10)) + b"\xff", b"\xa0")
    consensus = array(array(uint(3), uint(77)), octets(bytes(64)), array(uint(5)), array())
    header = array(uint(1), octets(bytes(32)), array(), consensus, array())
    raw = array(uint(1), array(header, array(b"\x9f" + array(tx, array()) + b"\xff"), array()))
    _, slot, (found,) = read_block(raw)
    assert slot == 3 * 21_600 + 77
    assert found.tx_id == hashlib.blake2b(tx, digest_size=32).digest()
    assert (found.inputs, found.outputs[0].address, found.outputs[0].lovelace) == ((TxIn(ONE.tx_id, 4),), address, 10)
    assert decode_block(array(uint(0), array(array(), array(), array()))) == [], "an epoch boundary block has none"


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (block(body(), witnesses=[mapping({}), mapping({})]), "1 transactions and 2 witness sets"),
        (block(body(), invalid=array(uint(1))), "transaction 1 is said to be invalid: the block has 1"),
        (block(mapping({0: array()})), "without inputs or outputs"),
        (block(b"\xa2\x00\x80\x00\x80"), "key 0 twice"),
        (block(body(k1=array(array(octets(b"a"), b"\x1b" + b"\xff" * 8)))), "there are not so many"),
        (block(body(k0=array(array(octets(b"short"), uint(1))))), "a transaction id has 5 bytes"),
        (block(body(k0=array(array(octets(b"\x01" * 32), uint(1 << 16))))), "it has two bytes"),
        (block(body(k9=b"\xa1" + octets(b"p") + b"\xa0")), "a policy id has 1 bytes"),
        (block(body(), era=9), "era 9 is not known"),
        (block(body()) + b"\x00", "no single"),
        (block(body(k1=b"\x9b" + b"\x7f" + b"\xff" * 7)), "claims"),
    ],
)
def test_what_is_no_block_is_refused_with_one_line(wrong: bytes, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        decode_block(wrong)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_damaged_blocks_are_read_or_refused_and_nothing_else(data: st.DataObject) -> None:
    raw = bytearray(data.draw(st.sampled_from(BLOCKS)))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(raw) - 1))
        cut = data.draw(st.integers(0, 3))
        raw[at : at + cut] = data.draw(st.binary(max_size=4))
    try:
        decode_block(bytes(raw))
    except BadInput as error:
        assert "\n" not in str(error)


@settings(max_examples=600, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_as_data_outputs_and_blocks(raw: bytes) -> None:
    for reader in (read, decode_output, decode_block):
        try:
            reader(raw)
        except BadInput as error:
            assert len(str(error)) < 300


def test_claims_and_tags_that_would_take_a_careless_reader_down() -> None:
    fraction = b"\xc4\x82\x1b\x7f\xff\xff\xff\xff\xff\xff\xff\x01"
    for raw in (
        fraction,
        b"\x9b\x00\x00\xff\xff\xff\xff\xff\xff",
        b"\x5b\x7f\xff\xff\xff\xff\xff\xff\xff",
        b"\x81" * 100_000 + b"\x01",
        b"\xbf" * 600,
    ):
        with pytest.raises(BadInput):
            read(raw)


def steps(raw: bytes) -> int:
    """How many lines run to read some data, or to refuse it."""
    count = 0

    def line(*_: object) -> Any:
        nonlocal count
        count += 1
        return line

    before = sys.gettrace()
    sys.settrace(line)
    try:
        read(raw)
    except BadInput:
        pass
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("around", [b"", b"\x81" * 40, b"\xd8\x79\x9f" * 20, b"\x81" * 400, b"\x9f" * 60])
def test_reading_takes_steps_by_length_however_deep_the_bytes_claim_to_be(around: bytes) -> None:
    def nested(count: int) -> bytes:
        return around + b"\x9f" + b"\x01" * count + b"\xff" * (1 + around.count(b"\x9f"))

    assert steps(nested(2_000)) < 2.5 * steps(nested(1_000)) < 200_000
    assert steps(b"\x81" * 60_000 + b"\x01") < 1_000_000
    assert steps(nested(4_000_000)) < 100, "longer than any transaction"


def test_plutus_data_in_all_its_forms() -> None:
    long = bytes(range(256))
    for plutus in (Plutus(True), Plutus(False)):
        assert read(plutus.constr(2, b"\x05", plutus.listed(b"\x20"))) == Constr(2, [5, [-1]])
    assert read(b"\x5f" + octets(long[:64]) + octets(long[64:]) + b"\xff") == long
    assert read(tag(1280, array())) == Constr(7, []) and read(tag(1400, array())) == Constr(127, [])
    assert read(tag(102, array(uint(500), array(uint(1))))) == Constr(500, [1])
    assert read(tag(2, octets(b"\x01" + bytes(8)))) == 1 << 64 and read(tag(3, octets(b"\x01" + bytes(8)))) == -1 - (1 << 64)


@pytest.mark.parametrize("fields", [b"\xa1\x01\x02", b"\xbf\x01\x02\xff", b"\xa0", b"\x01", b"\x40"])
def test_the_fields_of_a_constructor_are_a_list(fields: bytes) -> None:
    for raw in (tag(121, fields), tag(1280, fields), tag(102, array(uint(1), fields)), tag(102, b"\xa1\x01" + array())):
        with pytest.raises(BadInput):
            read(raw)


def test_demo_blocks_agree_with_a_general_decoder() -> None:
    forms = set()
    for raw in BLOCKS:
        _, (_, bodies, witnesses, _, invalid) = cbor2.loads(raw)
        for at, (tx, plain, witness) in enumerate(zip(decode_block(raw), bodies, witnesses, strict=True)):
            assert sorted(tx.inputs) == sorted(map(tuple, plain[0]))
            assert [out.lovelace for out in tx.outputs] == [out[1] if isinstance(out[1], int) else out[1][0] for out in plain[1]]
            assert tx.is_valid == (at not in invalid)
            forms.add(type(witness.get(5)))
            assert len(tx.redeemers) == len(witness.get(5, ()))
            assert len(tx.datums) == len(witness.get(4, ()))
    assert len(forms) == 3, "no redeemers, a list and a map"


def test_the_demo_shuffles_inputs() -> None:
    rng = random.Random(0)
    many = [tx.inputs for raw in BLOCKS for tx in decode_block(raw) if len(tx.inputs) > 2]
    assert rng.choice(many) and any(list(inputs) != sorted(inputs) for inputs in many)
