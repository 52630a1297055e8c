"""Transactions as bytes: equal to Google's protobuf on the same .proto, and safe with bytes of enemies."""

import contextlib
import re
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from chainlake import shards
from chainlake.errors import BadInput
from chainlake.shards import codec, shards_pb2
from chainlake.shards.codec import MAX_GROUPS, decode, decode_stream, encode, encode_stream
from chainlake.shards.transactions import (
    CreateStreamTx,
    MiniblockUpdate,
    SetStreamLastMiniblockBatchTx,
    StreamMetadata,
    Transaction,
    UpdateStreamNodesAndReplicationTx,
)

PROTO = Path(shards.__file__).with_name("shards.proto")
SCALARS = {"bytes": 12, "int64": 3, "uint32": 13, "bool": 8}
OPS = {
    CreateStreamTx: "create_stream",
    SetStreamLastMiniblockBatchTx: "set_stream_last_miniblock_batch",
    UpdateStreamNodesAndReplicationTx: "update_stream_nodes_and_replication",
}


@cache
def oracle() -> dict[str, Any]:
    """Google's classes for the messages of shards.proto."""
    return {name: getattr(shards_pb2, name) for name in shards_pb2.DESCRIPTOR.message_types_by_name}


def declared() -> descriptor_pb2.FileDescriptorProto:
    """What shards.proto says."""
    text = re.sub("//.*", "", PROTO.read_text())
    package = re.search(r"package ([\w.]+);", text)
    assert package is not None
    file = descriptor_pb2.FileDescriptorProto(name="chainlake/shards/shards.proto", package=package[1], syntax="proto3")
    for name, body in re.findall(r"^message (\w+) \{\n(.*?)^\}", text, re.S | re.M):
        message = file.message_type.add(name=name)
        if "oneof op" in body:
            message.oneof_decl.add(name="op")
        for repeated, kind, field, number in re.findall(r"^ +(repeated )?(\w+) (\w+) = (\d+);", body, re.M):
            made = message.field.add(name=field, number=int(number), label=3 if repeated else 1, type=SCALARS.get(kind, 11))
            if kind not in SCALARS:
                made.type_name = f".{file.package}.{kind}"
            if "oneof op" in body:
                made.oneof_index = 0
    return file


def test_the_generated_code_is_that_of_the_proto() -> None:
    generated = descriptor_pb2.FileDescriptorProto()
    shards_pb2.DESCRIPTOR.CopyToProto(generated)
    assert generated == declared(), "make proto"


def fill(message: Any, value: Any) -> Any:
    for name in value._fields:
        found = getattr(value, name)
        if isinstance(found, StreamMetadata):
            fill(getattr(message, name), found).SetInParent()
        elif isinstance(found, tuple):
            for one in found:
                fill(getattr(message, name).add(), one) if isinstance(one, MiniblockUpdate) else getattr(message, name).append(
                    one
                )
        elif found is not None:
            setattr(message, name, found)
    return message


def google(transaction: Transaction) -> bytes:
    outer = oracle()["MetadataTx"]()
    op = getattr(outer, OPS[type(transaction)])
    op.SetInParent()
    fill(op, transaction)
    return bytes(outer.SerializeToString(deterministic=True))


def read(kind: type[Any], message: Any) -> Any:
    return kind(**{name: getattr(message, name) for name in kind._fields})


def google_decode(data: bytes) -> Transaction | None:
    outer = oracle()["MetadataTx"].FromString(data)
    if outer.WhichOneof("op") == "create_stream":
        op = outer.create_stream
        if not op.HasField("stream"):
            return CreateStreamTx()
        values = {name: getattr(op.stream, name) for name in StreamMetadata._fields}
        return CreateStreamTx(StreamMetadata(**{**values, "nodes": tuple(values["nodes"])}))
    if outer.WhichOneof("op") == "set_stream_last_miniblock_batch":
        items = outer.set_stream_last_miniblock_batch.miniblocks
        return SetStreamLastMiniblockBatchTx(tuple(read(MiniblockUpdate, item) for item in items))
    if outer.WhichOneof("op") is None:
        return None
    op = outer.update_stream_nodes_and_replication
    return UpdateStreamNodesAndReplicationTx(op.stream_id, tuple(op.nodes), op.replication_factor)


short = st.binary(max_size=40)
int64 = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 300)
uint32 = st.integers(0, (1 << 32) - 1) | st.integers(0, 3)
nodes = st.lists(short, max_size=4).map(tuple)
streams = st.builds(StreamMetadata, short, short, int64, nodes, uint32, st.booleans())
miniblocks = st.builds(MiniblockUpdate, short, short, int64, short, st.booleans())
transactions: st.SearchStrategy[Transaction] = st.one_of(
    st.builds(CreateStreamTx, st.none() | streams),
    st.builds(SetStreamLastMiniblockBatchTx, st.lists(miniblocks, max_size=4).map(tuple)),
    st.builds(UpdateStreamNodesAndReplicationTx, short, nodes, uint32),
)


def test_the_proto_says_what_the_facts_say() -> None:
    fields = {
        name: [(field.name, field.number) for field in made.DESCRIPTOR.fields_by_number.values()]
        for name, made in oracle().items()
    }
    assert fields["StreamMetadata"] == [
        ("stream_id", 1),
        ("last_miniblock_hash", 2),
        ("last_miniblock_num", 3),
        ("nodes", 4),
        ("replication_factor", 5),
        ("sealed", 8),
    ]
    assert fields["MetadataTx"] == [(name, number) for number, name in enumerate(OPS.values(), start=1)]
    assert {name: len(found) for name, found in fields.items()} == {
        **{"StreamMetadata": 6, "MetadataTx": 3, "CreateStreamTx": 1, "SetStreamLastMiniblockBatchTx": 1},
        **{"MiniblockUpdate": 5, "UpdateStreamNodesAndReplicationTx": 3},
    }


@settings(max_examples=150)
@given(transactions)
def test_bytes_equal_googles_and_come_back(transaction: Transaction) -> None:
    data = encode(transaction)
    assert data == google(transaction)
    assert decode(data) == transaction


@settings(max_examples=100)
@given(streams)
def test_stream_metadata_comes_back_from_its_canonical_bytes(stream: StreamMetadata) -> None:
    data = encode_stream(stream)
    assert data == fill(oracle()["StreamMetadata"](), stream).SerializeToString(deterministic=True)
    assert decode_stream(data) == stream


@settings(max_examples=150)
@given(st.lists(transactions, min_size=1, max_size=3), st.data())
def test_concatenated_and_damaged_transactions_mean_what_they_mean_to_google(
    parts: list[Transaction], data: st.DataObject
) -> None:
    """Messages that follow each other are merged, or replace each other; a changed byte gives the same, or no transaction."""
    whole = b"".join(map(encode, parts))
    assert decode(whole) == google_decode(whole)
    if not whole:
        return
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = whole[:at] + bytes([data.draw(st.integers(0, 255))]) + whole[at + 1 :]
    _agree_with_google(damaged)
    _agree_with_google(whole[:at])


@settings(max_examples=200)
@given(st.binary(max_size=40))
def test_any_bytes_are_a_transaction_or_a_reason(data: bytes) -> None:
    _agree_with_google(data)


def _agree_with_google(data: bytes) -> None:
    """Go, which we follow, takes longer encodings of a field's number than Google's C library, and no number above 64 bits."""
    try:
        theirs, refused = google_decode(data), False
    except DecodeError:
        theirs, refused = None, True
    try:
        ours = decode(data)
    except BadInput as error:
        assert str(error).startswith("not protobuf: ")
        assert refused or "64 bits" in str(error)
    else:
        assert refused or ours == theirs


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("ff", "ends in the middle of a number"),
        ("0a", "ends in the middle of a number"),
        ("0aff", "ends in the middle of a number"),
        ("0a05", "field 1 claims 5 bytes, 0 are left"),
        ("0affffffff7f", "field 1 claims 34359738367 bytes, 0 are left"),
        ("12ffffffffffffffffff01", "field 2 claims 18446744073709551615 bytes"),
        ("12ffffffffffffffffff02", "a number has more than 64 bits"),
        ("12ffffffffffffffffffff01", "a number has more than 64 bits"),
        ("0000", "there is no field number 0"),
        ("8080808010" + "00", "there is no field number 536870912"),
        ("0c", "field 1 has wire type 4"),
        ("0f", "field 1 has wire type 7"),
        ("7b7c7c", "field 15 has wire type 4"),
        ("7b0c", "field 1 has wire type 4"),
        ("7b", "ends in the middle of a number"),
        ("79000000", "field 15 ends 5 bytes after the message"),
        ("0a020a05", "field 1 claims 5 bytes, 0 are left"),
    ],
)
def test_what_is_wrong_with_bytes_is_said(data: str, reason: str) -> None:
    with pytest.raises(BadInput, match=re.escape(reason)):
        decode(bytes.fromhex(data))


@pytest.mark.parametrize(
    ("data", "meaning"),
    [
        ("", None),
        ("7801", None),  # an unknown number
        ("7b7d000000007c", None),  # an unknown group
        ("0801", None),  # a known number of another wire type
        ("8a808080808000" + "00", CreateStreamTx()),  # a field number written longer than it need be
        ("0a021800", CreateStreamTx()),  # an unknown field inside
        ("0a00" + "1a00", UpdateStreamNodesAndReplicationTx()),  # the last op holds
        ("1a021801" + "1a020a00", UpdateStreamNodesAndReplicationTx(replication_factor=1)),  # the same op is merged
        ("1a07" + "18ffffffffff01", UpdateStreamNodesAndReplicationTx(replication_factor=0xFFFFFFFF)),  # low 32 bits
        ("0a040a024002", CreateStreamTx(StreamMetadata(sealed=True))),  # every number but 0 is true
        ("0a080a022801" + "0a024001", CreateStreamTx(StreamMetadata(replication_factor=1, sealed=True))),  # merged below
    ],
)
def test_unusual_bytes_mean_what_they_mean_in_go(data: str, meaning: Transaction | None) -> None:
    assert decode(bytes.fromhex(data)) == meaning


def test_a_replaced_op_must_be_readable_too() -> None:
    with pytest.raises(BadInput):
        decode(bytes.fromhex("0a020a05" + "1a00"))


def test_groups_nest_as_deep_as_in_go_and_cost_no_stack() -> None:
    assert decode(b"\x7b" * MAX_GROUPS + b"\x7c" * MAX_GROUPS) is None
    with pytest.raises(BadInput, match="wire type 3"):
        decode(b"\x7b" * (MAX_GROUPS + 1) + b"\x7c" * (MAX_GROUPS + 1))


def test_large_bytes_of_enemies_take_time_in_proportion() -> None:
    began = time.process_time()
    for data in (b"\x7b" * 200_000, b"\x78\x01" * 100_000, b"\x1a\x00" * 100_000, b"\xff" * 200_000):
        with contextlib.suppress(BadInput):
            decode(data)
    many = decode(encode(SetStreamLastMiniblockBatchTx((MiniblockUpdate(),) * 50_000)))
    assert isinstance(many, SetStreamLastMiniblockBatchTx) and len(many.miniblocks) == 50_000
    empty = decode(encode(UpdateStreamNodesAndReplicationTx(nodes=(b"",) * 100_000)))
    assert isinstance(empty, UpdateStreamNodesAndReplicationTx) and len(empty.nodes) == 100_000
    assert time.process_time() - began < 20


def test_numbers_that_do_not_fit_are_refused_when_written() -> None:
    with pytest.raises(BadInput, match="9223372036854775808 is not an int64"):
        encode(CreateStreamTx(StreamMetadata(last_miniblock_num=1 << 63)))
    with pytest.raises(BadInput, match="-1 is not a uint32"):
        encode(UpdateStreamNodesAndReplicationTx(replication_factor=-1))


def test_the_canonical_value_of_a_stream_byte_by_byte() -> None:
    stream = StreamMetadata(b"\x10" * 32, b"\xaa" * 32, 300, (b"\x01" * 20, b"\x02" * 20), 2, True)
    expected = "0a20" + "10" * 32 + "1220" + "aa" * 32 + "18ac02" + "2214" + "01" * 20 + "2214" + "02" * 20 + "2802" + "4001"
    assert encode_stream(stream).hex() == expected
    assert encode_stream(StreamMetadata()) == b""


@given(
    st.integers(0, 1 << 20),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3),
    st.integers(0, 3),
)
def test_the_short_way_to_read_a_miniblock_reads_what_the_long_one_reads(
    number: int, sealed: bool, changes: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(codec._encode_miniblock(MiniblockUpdate(b"i" * 32, b"p" * 32, number, b"h" * 32, sealed)))
    for place, value in changes:
        data[place % len(data)] = value
    usual = codec._usual_miniblock(bytes(data[: len(data) - cut]))
    if usual is not None:
        assert usual == codec._any_miniblock(bytes(data[: len(data) - cut]))
    elif not changes and not cut:
        assert number >= 1 << 14 or number == 0
