"""The messages of river that come by the million, read by protobuf's own parser, which is written in C.

What is inside an event stays bytes as sent, because hashes are taken over them: an envelope's event is bytes here, and so is the
payload of an event, of which only the kind is of interest.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from chainlake.errors import BadInput

PACKAGE = "chainlake.river"
PAYLOADS = {
    100: "miniblock_header",
    101: "member",
    102: "space",
    103: "channel",
    104: "user",
    105: "user_settings",
    106: "user_metadata",
    107: "user_inbox",
    108: "media",
    109: "dm_channel",
    110: "gdm_channel",
    111: "metadata",
}
_FIELD = descriptor_pb2.FieldDescriptorProto
_KINDS = {"bytes": _FIELD.TYPE_BYTES, "int64": _FIELD.TYPE_INT64}
MESSAGES = {
    "Envelope": {1: "bytes hash", 3: "bytes event"},
    "Miniblock": {1: "Envelope* events", 2: "Envelope header"},
    "Timestamp": {1: "int64 seconds", 2: "int64 nanos"},
    "MiniblockHeader": {
        1: "int64 miniblock_num",
        2: "bytes prev_miniblock_hash",
        3: "Timestamp timestamp",
        4: "bytes* event_hashes",
        5: "bytes snapshot",
        8: "bytes snapshot_hash",
    },
    "HeaderEvent": {100: "MiniblockHeader miniblock_header"},
    "StreamEvent": {1: "bytes creator_address", 5: "int64 created_at_epoch_ms"},
}
"""Fields by number; `*` means repeated. Others are passed over."""


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="chainlake/river.proto", package=PACKAGE, syntax="proto2")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, text in fields.items():
            kind, field_name = text.split()
            label = _FIELD.LABEL_REPEATED if kind.endswith("*") else _FIELD.LABEL_OPTIONAL
            field = message.field.add(name=field_name, number=number, label=label)
            kind = kind.rstrip("*")
            if kind in _KINDS:
                field.type = _KINDS[kind]
            else:
                field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
        if name == "StreamEvent":
            message.oneof_decl.add(name="payload")
            for number, kind in PAYLOADS.items():
                message.field.add(name=kind, number=number, label=_FIELD.LABEL_OPTIONAL, type=_FIELD.TYPE_BYTES, oneof_index=0)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in MESSAGES}


_CLASSES = _classes()


def parse(name: str, data: bytes) -> Any:
    """The bytes as a message; `BadInput` if they are none."""
    try:
        return _CLASSES[name].FromString(data)
    except DecodeError as error:
        raise BadInput(f"not protobuf: {error}") from None
