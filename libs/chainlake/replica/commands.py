"""The commands of the logs: which there are, what each carries, and in which logs it may stand.

A command is a plain object with a `type` and the members that `COMMANDS` declares for it. The same declaration gives the JSON
form (this module) and the protobuf form (envelope.py). Members that are not declared are kept and not looked at. A watermark of
0 is the same as none.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from chainlake.errors import BadInput
from chainlake.json_depth import is_deeper
from chainlake.replica.groups import DATA_GROUPS, KNOWN, META, OLD_META, SHARED, group_of
from chainlake.sources.json_text import canonical

Command = dict[str, Any]

TEXT, NUMBER, FLAG, TEXTS, JSON, JSONS = "text", "number", "flag", "texts", "json", "jsons"
SYSTEM, USERS, JOBS = OLD_META
DATA, ANY = "data", "any"
MAX_NUMBER = (1 << 63) - 1
MAX_DEPTH = 100
MAX_TEXT = 16 << 20


class Field(NamedTuple):
    """A member of a command: its number in the envelope, what it holds, and whether it may be absent."""

    name: str
    number: int
    kind: str
    optional: bool = False


class Declared(NamedTuple):
    """A kind of command: its number in the envelope, the log it belongs to, its members."""

    number: int
    log: str
    fields: tuple[Field, ...]


def _texts(*names: str) -> tuple[Field, ...]:
    return tuple(Field(name, at, TEXT) for at, name in enumerate(names, 1))


_NODE = (*_texts("job_id"), Field("node_id", 2, TEXT, True))
_TARGET = (Field("required_meta_index", 1, NUMBER, True), Field("table_id", 2, TEXT), Field("user_id", 3, TEXT, True))
COMMANDS: Mapping[str, Declared] = {
    "Blank": Declared(2, ANY, ()),
    "Membership": Declared(3, ANY, (Field("nodes", 1, JSON, True),)),
    "Snapshot": Declared(4, META, (Field("objects", 1, JSONS),)),
    "CreateNamespace": Declared(10, SYSTEM, _texts("namespace_id")),
    "CreateNamespaceIfNotExists": Declared(11, SYSTEM, _texts("namespace_id")),
    "DeleteNamespace": Declared(12, SYSTEM, _texts("namespace_id")),
    "CreateTable": Declared(13, SYSTEM, (*_texts("table_id"), Field("columns", 2, TEXTS), Field("primary_key", 3, TEXT))),
    "AlterTable": Declared(14, SYSTEM, (*_texts("table_id"), Field("add_columns", 2, TEXTS))),
    "DropTable": Declared(15, SYSTEM, _texts("table_id")),
    "RegisterStorage": Declared(16, SYSTEM, _texts("storage_id")),
    "UnregisterStorage": Declared(17, SYSTEM, _texts("storage_id")),
    "CreateUser": Declared(20, USERS, _texts("user_id", "role")),
    "UpdateUser": Declared(21, USERS, _texts("user_id", "role")),
    "DeleteUser": Declared(22, USERS, _texts("user_id")),
    "RecordLogin": Declared(23, USERS, (*_texts("user_id"), Field("at", 2, JSON))),
    "SetUserLocked": Declared(24, USERS, (*_texts("user_id"), Field("locked", 2, FLAG))),
    "CreateJob": Declared(30, JOBS, _texts("job_id")),
    "ClaimJob": Declared(31, JOBS, _texts("job_id")),
    "UpdateJobStatus": Declared(32, JOBS, _texts("job_id")),
    "CompleteJob": Declared(33, JOBS, _texts("job_id")),
    "FailJob": Declared(34, JOBS, _texts("job_id")),
    "ReleaseJob": Declared(35, JOBS, _texts("job_id")),
    "CancelJob": Declared(36, JOBS, _texts("job_id")),
    "CreateJobNode": Declared(37, JOBS, _NODE),
    "ClaimJobNode": Declared(38, JOBS, _NODE),
    "UpdateJobNodeStatus": Declared(39, JOBS, _NODE),
    "Insert": Declared(50, DATA, (*_TARGET, Field("rows", 4, JSONS))),
    "Update": Declared(51, DATA, (*_TARGET, Field("filter", 4, JSON), Field("updates", 5, JSON))),
    "Delete": Declared(52, DATA, (*_TARGET, Field("pk_values", 4, JSONS))),
}
RETIRED = {
    name: "live queries belong to a connection and are not replicated any more"
    for name in ("RegisterLiveQuery", "UnregisterLiveQuery", "PingLiveQuery")
}
_MEMBERS = {name: frozenset(field.name for field in declared.fields) for name, declared in COMMANDS.items()}
MARKERS = ("Blank", "Membership")
"""Entries that advance the index and do nothing else."""


def read_command(given: Any) -> Command:
    """The command of a JSON object; `BadInput` says what is wrong with it."""
    if not isinstance(given, dict):
        raise BadInput(f"a command is {given!r:.60}: an object with a type is expected")
    name = given.get("type")
    declared = COMMANDS.get(name) if isinstance(name, str) else None
    if not isinstance(name, str) or declared is None:
        raise unknown(name)
    command: Command = given
    if None in given.values() or given.get("required_meta_index") == 0:
        command = {key: value for key, value in given.items() if value is not None}
    for field, _, kind, optional in declared.fields:
        value = command.get(field)
        if value is None:
            if not optional:
                raise BadInput(f"{name} has no {field}")
        elif not (kind == TEXT and type(value) is str) and not _FITS[kind](value):
            raise BadInput(f"{name} has {field} {value!r:.60}: {_WANTED[kind]} is expected")
    if command.get("required_meta_index") == 0:
        del command["required_meta_index"]
    check = _SHAPES.get(name)
    if check is not None:
        check(command)
    return command


def member(command: Command, name: str) -> Any:
    """What a command says by a member that is declared for it, else None. Where it is not declared it may be anything."""
    return command.get(name) if name in _MEMBERS[command["type"]] else None


def unknown(name: Any) -> BadInput:
    """Why there is no command of this name."""
    if isinstance(name, str) and name in RETIRED:
        return BadInput(f"{name} is retired: {RETIRED[name]}")
    return BadInput(f"{name!r:.60} is not a kind of command: if a newer version knows it, upgrade")


def check_group(group: Any) -> None:
    """Refuses a group that there is not."""
    if not isinstance(group, str) or group not in KNOWN:
        raise BadInput(f"{group!r:.60} is not a group: there are meta, data:user:00 to data:user:31, and data:shared:00")


def check_place(group: Any, command: Command) -> None:
    """Refuses a command in a log that it does not belong to."""
    check_group(group)
    log = COMMANDS[command["type"]].log
    if log == ANY:
        return
    fits = group in DATA_GROUPS if log == DATA else group in (META, log)
    if not fits:
        raise BadInput(f"{command['type']} stands in the log of {group}: it belongs to {log if log != DATA else 'a data group'}")
    if log == DATA and ("user_id" in command) == (group == SHARED):
        raise BadInput(f"{command['type']} in {group} has {'a' if group == SHARED else 'no'} user_id")
    if log == DATA and group != SHARED and group_of(command["user_id"]) != group:
        wanted = group_of(command["user_id"])
        raise BadInput(
            f"{command['type']} of user {command['user_id']!r:.60} stands in the log of {group}: it belongs to {wanted}"
        )


def command_text(command: Command) -> str:
    """The one text of a command, by which two of them are compared. What is nested deeper than `MAX_DEPTH` is refused here, so
    that whoever reads the text later can."""
    data = canonical(command)
    if is_deeper(data, MAX_DEPTH):
        raise BadInput(f"{command['type']} is nested more than {MAX_DEPTH} deep")
    text = data.decode()
    if len(text) > MAX_TEXT:
        raise BadInput(f"{command['type']} is {len(text):,} characters long: at most {MAX_TEXT:,} are expected, divide it")
    return text


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_NUMBER


_FITS: Mapping[str, Callable[[Any], bool]] = {
    TEXT: lambda value: isinstance(value, str),
    NUMBER: _is_number,
    FLAG: lambda value: isinstance(value, bool),
    TEXTS: lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value),
    JSON: lambda value: True,
    JSONS: lambda value: isinstance(value, list),
}
_WANTED = {
    TEXT: "a text",
    NUMBER: "a number from 0",
    FLAG: "true or false",
    TEXTS: "an array of texts",
    JSONS: "an array",
    JSON: "a value",
}


def _check_rows(command: Command) -> None:
    for row in command["rows"]:
        if not isinstance(row, dict):
            raise BadInput(f"Insert has the row {row!r:.60}: an object is expected")


def _check_update(command: Command) -> None:
    for name in ("filter", "updates"):
        if not isinstance(command[name], dict):
            raise BadInput(f"Update has {name} {command[name]!r:.60}: an object is expected")


def _check_user(command: Command) -> None:
    """A user's definition holds `locked`, and whoever looks there, as for a snapshot, expects a flag."""
    if "locked" in command and not _FITS[FLAG](command["locked"]):
        raise BadInput(f"{command['type']} has locked {command['locked']!r:.60}: {_WANTED[FLAG]} is expected")


def _check_table(command: Command) -> None:
    namespace, dot, table = command["table_id"].partition(".")
    if not (namespace and dot and table):
        raise BadInput(f"CreateTable has table_id {command['table_id']!r:.60}: namespace.table is expected")


def _check_objects(command: Command) -> None:
    shape = {"kind": TEXT, "id": TEXT, "definition": JSON, "created_index": NUMBER, "updated_index": NUMBER}
    for one in command["objects"]:
        if not isinstance(one, dict) or any(name not in one or not _FITS[kind](one[name]) for name, kind in shape.items()):
            raise BadInput(f"Snapshot has the object {one!r:.60}: {', '.join(shape)} are expected")
        needed = _DEFINED.get(one["kind"])
        if needed is None:
            raise BadInput(f"Snapshot has an object of kind {one['kind']!r:.60}: there are {', '.join(_DEFINED)}")
        held = one["definition"]
        if one["kind"] == "user" and isinstance(held, dict):
            held = {"locked": False, **held}
        if not isinstance(held, dict) or any(name not in held or not _FITS[kind](held[name]) for name, kind in needed.items()):
            told = f" with {', '.join(needed)}" if needed else ""
            raise BadInput(f"Snapshot defines {one['kind']} {one['id']!r:.60} as {held!r:.60}: an object{told} is expected")


_DEFINED: Mapping[str, Mapping[str, str]] = {
    "namespace": {},
    "table": {"columns": TEXTS, "primary_key": TEXT},
    "user": {"locked": FLAG},
    "storage": {},
    "job": {},
    "job_node": {},
}
"""Kinds of objects that a snapshot may hold, and what commands later need of them."""


_SHAPES: Mapping[str, Callable[[Command], None]] = {
    "Insert": _check_rows,
    "Update": _check_update,
    "CreateTable": _check_table,
    "CreateUser": _check_user,
    "UpdateUser": _check_user,
    "Snapshot": _check_objects,
}
