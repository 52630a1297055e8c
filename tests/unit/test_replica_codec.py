"""Commands as bytes: equal to Google's protobuf on the same .proto, and safe with bytes of enemies."""

import base64
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from chainlake import replica
from chainlake.errors import BadInput
from chainlake.replica.commands import COMMANDS, FLAG, JSON, JSONS, NUMBER, TEXT, TEXTS, Field, command_text, member
from chainlake.replica.decode import decode_entries
from chainlake.replica.entries import read_entry
from chainlake.replica.envelope import decode, encode
from chainlake.replica.groups import SHARED, group_of
from chainlake.sources.json_text import canonical
from chainlake.sources.wire import field_bytes, field_int

PROTO = Path(replica.__file__).with_name("replica.proto")
SCALARS = {"string": 9, "bytes": 12, "uint64": 4, "uint32": 13, "bool": 8}


@cache
def google() -> dict[str, Any]:
    """Google's classes for the messages of replica.proto."""
    text = re.sub("//.*", "", PROTO.read_text())
    file = descriptor_pb2.FileDescriptorProto(name="replica.proto", package="chainlake.replica", syntax="proto3")
    for name, body in re.findall(r"^message (\w+) \{\n(.*?)^\}", text, re.S | re.M):
        message = file.message_type.add(name=name)
        is_envelope = "oneof command" in body
        if is_envelope:
            message.oneof_decl.add(name="command")
        for label, kind, field, number in re.findall(r"^ +(repeated |optional )?(\w+) (\w+) = (\d+);", body, re.M):
            repeated = 3 if label == "repeated " else 1
            made = message.field.add(name=field, number=int(number), label=repeated, type=SCALARS.get(kind, 11))
            if label == "optional ":
                made.proto3_optional, made.oneof_index = True, len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field}")
            if kind not in SCALARS:
                made.type_name, made.oneof_index = f".chainlake.replica.{kind}", 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = [f"{file.package}.{message.name}" for message in file.message_type]
    return {name.split(".")[-1]: message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in names}


def by_google(command: dict[str, Any]) -> bytes:
    envelope = google()["Envelope"](version=1)
    message = getattr(envelope, re.sub(r"(?<!^)(?=[A-Z])", "_", command["type"]).lower())
    message.SetInParent()
    fields = {field.name: field for field in COMMANDS[command["type"]].fields}
    other = {key: value for key, value in command.items() if key not in (*fields, "type")}
    for name, field in fields.items():
        if name in command:
            value = command[name]
            if field.kind in (TEXTS, JSONS):
                getattr(message, name).extend([canonical(one) for one in value] if field.kind == JSONS else value)
            else:
                setattr(message, name, canonical(value) if field.kind == JSON else value)
    if other:
        message.other = canonical(other)
    return bytes(envelope.SerializeToString(deterministic=True))


TEXT_VALUES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.recursive(st.none() | st.booleans() | st.integers(-(1 << 60), 1 << 60) | TEXT_VALUES, st.lists, max_leaves=3)
OBJECTS = st.dictionaries(TEXT_VALUES, VALUES, max_size=3)


def values_of(command: str, field: Field) -> st.SearchStrategy[Any]:
    if (command, field.name) == ("CreateTable", "table_id"):
        return TEXT_VALUES.map(lambda text: f"n.{text}t")
    if (command, field.name) == ("Snapshot", "objects"):
        made = {"kind": "user", "id": "a", "definition": {"role": "x"}, "created_index": 1, "updated_index": 2}
        return st.lists(st.just(made), max_size=2)
    return {
        TEXT: TEXT_VALUES,
        NUMBER: st.integers(1, (1 << 63) - 1),
        FLAG: st.booleans(),
        TEXTS: st.lists(TEXT_VALUES, max_size=3),
        JSON: OBJECTS,
        JSONS: st.lists(OBJECTS, max_size=3),
    }[field.kind]


@st.composite
def commands(draw: st.DrawFn) -> dict[str, Any]:
    name = draw(st.sampled_from(sorted(COMMANDS)))
    fields = COMMANDS[name].fields
    command = {f.name: draw(values_of(name, f)) for f in fields if not f.optional or draw(st.booleans())}
    others = draw(st.dictionaries(st.sampled_from(["what", "status", "type_of"]), TEXT_VALUES, max_size=2))
    return {"type": name, **others, **command}


@given(commands())
def test_every_command_is_written_as_google_writes_it_and_read_back(command: dict[str, Any]) -> None:
    data = encode(command)
    assert data == by_google(command)
    assert decode(data) == command
    assert command_text(decode(data)) == command_text(command)


def test_the_proto_has_every_command_and_no_other() -> None:
    text = PROTO.read_text()
    assert set(re.findall(r"^message (\w+)", text, re.M)) == {"Envelope", *COMMANDS}


def test_an_entry_means_the_same_in_both_forms() -> None:
    command = {"type": "CreateUser", "user_id": "alice", "role": "user"}
    place = {"group": "meta", "log_index": 1, "log_term": 1}
    data = base64.b64encode(encode(command)).decode()
    assert read_entry({**place, "command": command}) == read_entry({**place, "command_bytes": data})
    unstamped = {"type": "Insert", "table_id": "a.b", "rows": []}
    assert encode(unstamped) == encode({**unstamped, "required_meta_index": 0}), "no watermark is watermark 0"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "version 0"),
        (b"\x08\x02\x12\x00", "version 2, 1 is known"),
        (b"\x08\x01", "no command"),
        (b"\x08\x01\xfa\x3f\x00", "command number 1023"),
        (b"\x08\x01\xa2\x01\x05ab", "claims 5 bytes"),
        (b"\x08\x01\xa2\x01\x03\x0a\x01\xff", "not UTF-8"),
        (b"\x08\x01\xa2\x01\x03\x7a\x01\x5b", "not JSON"),
        (b"\x08\x01\xa2\x01\x04\x7a\x02[]", "where an object is expected"),
    ],
)
def test_bytes_that_are_no_command_say_why(data: bytes, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        decode(data)


def test_what_is_not_declared_does_not_make_an_envelope_another_command() -> None:
    body = field_bytes(1, b"alice") + field_bytes(2, b"user") + field_bytes(15, b'{"type":"DeleteUser","role":"dba","zone":1}')
    command = decode(field_int(1, 1) + field_bytes(COMMANDS["CreateUser"].number, body))
    assert command == {"type": "CreateUser", "user_id": "alice", "role": "user", "zone": 1}


def test_an_entry_that_cannot_be_understood_is_an_error_beside_the_others() -> None:
    """Whatever is wrong with it: an exception would end the batch, and every batch after it."""
    place = {"group": "data:shared:00", "log_index": 1, "log_term": 1}
    deep = b"[" * 150 + b"]" * 150
    poison = {
        "half of a surrogate pair": rb'{"id":"\ud800"}',
        "too large for a double": b'{"id":1e999}',
        "nested more than 100 deep": b'{"id":' + deep + b"}",
        "nested too deeply": b'{"id":' + b"[" * 20_000 + b"}",
        "not UTF-8": b'{"id":"\xff"}',
        "an object is expected": b"7",
        "characters long": b'{"id":"' + b"x" * (16 << 20) + b'"}',
    }
    good = encode({"type": "Insert", "table_id": "a.b", "rows": [{"id": "\u2028"}]})
    bodies = [good, *(_envelope(row) for row in poison.values()), good]
    payloads = [canonical({**place, "command_bytes": base64.b64encode(body).decode()}) for body in bodies]
    of_nobody = base64.b64encode(_envelope(b"{}", rb'{"user_id":"\ud800"}')).decode()
    payloads.insert(1, canonical({**place, "group": "data:user:00", "command_bytes": of_nobody}))
    batch = pa.RecordBatch.from_pydict({"_height": [1] * 10, "tx_index": list(range(10)), "payload": payloads})
    (found,) = decode_entries([batch])
    first, said_of_nobody, *errors, last = found.column("error").to_pylist()
    assert first is None and last is None and "half of a surrogate pair" in said_of_nobody
    assert all(wanted in said for wanted, said in zip(poison, errors, strict=True)), errors


LONG = st.integers(1 << 62, 1 << 70)
ODD = st.sampled_from(
    [
        *({"group": "meta"}, {"v": None}, {"table_id": 5}, {}),
        *({"rows": rows} for rows in ([{"a": '],"table_id":'}], [{}, 1], {})),
        *({"user_id": None}, {"user_id": "bob"}, {"user_id": 7}),
        *({"required_meta_index": stamp} for stamp in (0, -1, True, "1", 1.0, 1 << 62)),
    ]
)


@given(commands(), ODD, st.none() | LONG)
def test_entries_are_read_quickly_as_they_are_read_thoroughly(command: dict[str, Any], odd: dict[str, Any], number: int) -> None:
    declared = COMMANDS[command["type"]]
    group = {"data": group_of(command["user_id"]) if "user_id" in command else SHARED, "any": SHARED}.get(declared.log, "meta")
    given = {**command, **odd, **({} if number is None else {"n": number})}
    entry = {"group": group, "log_index": 7, "log_term": 0, "command": given}
    batch = pa.RecordBatch.from_pydict({"_height": [1], "tx_index": [0], "payload": [canonical(entry)]})
    (row,) = next(iter(decode_entries([batch]))).to_pylist()
    try:
        expected = read_entry(entry)
    except BadInput as error:
        assert row["error"] == str(error)
        return
    told = (row["group_name"], row["log_index"], row["log_term"], row["command"], row["error"])
    assert told == (group, 7, 0, command_text(expected.command), None)
    assert (row["type"], row["required_meta_index"]) == (command["type"], expected.required)
    assert (row["table_id"], row["user_id"]) == (member(expected.command, "table_id"), member(expected.command, "user_id"))


@pytest.mark.parametrize(
    ("group", "more", "message"),
    [
        ("data:user:01", {"user_id": "alice"}, "stands in the log of data:user:01: it belongs to data:user:00"),
        ("data:user:00", {}, "has no user_id"),
        (SHARED, {"user_id": "alice"}, "has a user_id"),
        ("meta", {}, "it belongs to a data group"),
        (SHARED, {"rows": [{"id": json.loads("[" * 150 + "]" * 150)}]}, "nested more than 100 deep"),
        (SHARED, {"rows": [{"id": "x" * (16 << 20)}]}, "characters long"),
        (SHARED, {"rows": [{"id": 1}, 1]}, "an object is expected"),
        (SHARED, {"required_meta_index": 1 << 63}, "a number from 0 is expected"),
    ],
)
def test_the_quick_way_of_inserts_refuses_what_the_thorough_one_does(group: str, more: dict[str, Any], message: str) -> None:
    command = {"type": "Insert", "table_id": "a.b", "rows": [{"id": 1}], **more}
    payload = canonical({"group": group, "log_index": 1, "log_term": 1, "command": command})
    batch = pa.RecordBatch.from_pydict({"_height": [1], "tx_index": [0], "payload": [payload]})
    (row,) = next(iter(decode_entries([batch]))).to_pylist()
    assert message in (row["error"] or "")


def _envelope(row: bytes, other: bytes = b"{}") -> bytes:
    """An Insert of a row as it stands, and of members that are not declared."""
    body = field_bytes(2, b"a.b") + field_bytes(4, row) + field_bytes(15, other)
    return field_int(1, 1) + field_bytes(COMMANDS["Insert"].number, body)


@given(st.binary(max_size=60), st.sampled_from([declared.number for declared in COMMANDS.values()]))
def test_bytes_of_enemies_are_a_command_or_bad_input(noise: bytes, number: int) -> None:
    for data in (noise, b"\x08\x01" + bytes([number << 3 & 0x7F | 0x82, number >> 4]) + bytes([len(noise)]) + noise):
        try:
            decode(data)
        except BadInput:
            continue
