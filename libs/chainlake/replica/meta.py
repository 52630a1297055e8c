"""The Meta state machine: namespaces, tables, users, storages and jobs, changed by one log, command by command.

Every command that succeeds changes objects; the change is noted with the Meta index of the command, so that Meta can be read as
of any index. A command that fails changes nothing, and advances the index all the same.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from chainlake.replica.commands import COMMANDS, MARKERS, Command

NAMESPACE, TABLE, USER, STORAGE, JOB, JOB_NODE = "namespace", "table", "user", "storage", "job", "job_node"

Key = tuple[str, str]


class MetaObject(NamedTuple):
    """An object of Meta, and the indexes at which it came into being and was changed last."""

    kind: str
    id: str
    definition: Mapping[str, Any]
    created_index: int
    updated_index: int

    @property
    def key(self) -> Key:
        return self.kind, self.id


class MetaChange(NamedTuple):
    """What a command did to an object: as it is now, or as it was last when it is gone."""

    meta_index: int
    object: MetaObject
    gone: bool = False


class Refused(Exception):
    """A command that is not possible, with its error as it is recorded."""


class MetaState:
    """Meta at one index. It may hold part of all objects, as long as those are there that `touched` names."""

    def __init__(self, objects: Iterable[MetaObject] = ()) -> None:
        self.objects = {one.key: one for one in objects}

    def apply(self, index: int, command: Command, is_first: bool = False) -> tuple[str | None, list[MetaChange]]:
        """Carry out a command: its error if it is refused, and what it changed. What a Snapshot holds counts from its creation on
        if the log starts with it (`is_first`), so that commands which were stamped before the Snapshot find it; what a later one
        brings back lives anew from there."""
        kind = command["type"]
        if kind in MARKERS:
            return None, []
        try:
            after = _replace_all(self, index, command) if kind == "Snapshot" else _RULES[kind](self, index, command)
        except Refused as refused:
            return str(refused), []
        changes = []
        for key, made in after.items():
            before = self.objects.get(key)
            if made is None and before is not None:
                del self.objects[key]
                changes.append(MetaChange(index, before, gone=True))
            elif made is not None:
                if before is None and kind == "Snapshot" and not is_first:
                    made = made._replace(created_index=index)
                self.objects[key] = made
                since = min(index, made.created_index) if is_first and kind == "Snapshot" else index
                changes.append(MetaChange(since, made))
        return None, changes

    def get(self, kind: str, name: str) -> MetaObject:
        found = self.objects.get((kind, name))
        if found is None:
            raise Refused(f"{_NAMES[kind]} not found")
        return found

    def has_tables(self, namespace: str) -> bool:
        return any(kind == TABLE and name.partition(".")[0] == namespace for kind, name in self.objects)


Changed = dict[Key, MetaObject | None]
_NAMES = {NAMESPACE: "namespace", TABLE: "table", USER: "user", STORAGE: "storage", JOB: "job", JOB_NODE: "job node"}


def touched(command: Command) -> list[Key]:
    """The objects that a command looks at. `DeleteNamespace` looks at the tables of the namespace too, `Snapshot` at
    everything."""
    declared = COMMANDS[command["type"]]
    if not declared.fields or command["type"] in ("Membership", "Snapshot"):
        return []
    name: str = command[declared.fields[0].name]
    kind = {"namespace_id": NAMESPACE, "table_id": TABLE, "user_id": USER, "storage_id": STORAGE, "job_id": JOB}[
        declared.fields[0].name
    ]
    if kind == TABLE:
        return [(TABLE, name), (NAMESPACE, name.partition(".")[0])]
    return [(JOB, name), (JOB_NODE, _node(command))] if kind == JOB else [(kind, name)]


def _replace_all(state: MetaState, index: int, command: Command) -> Changed:
    """A snapshot says what there is, and nothing else is."""
    after: Changed = dict.fromkeys(state.objects)
    for one in command["objects"]:
        made = MetaObject(one["kind"], one["id"], one["definition"], one["created_index"], one["updated_index"])
        after[made.key] = made
    return after


def _made(state: MetaState, index: int, kind: str, name: str, definition: Mapping[str, Any]) -> Changed:
    if (kind, name) in state.objects:
        raise Refused(f"{_NAMES[kind]} exists")
    return {(kind, name): MetaObject(kind, name, definition, index, index)}


def _with(found: MetaObject, index: int, definition: Mapping[str, Any]) -> Changed:
    return {found.key: found._replace(definition={**found.definition, **definition}, updated_index=index)}


def _other(command: Command, *named: str) -> dict[str, Any]:
    return {key: value for key, value in command.items() if key not in ("type", *named)}


def _create_namespace(state: MetaState, index: int, command: Command) -> Changed:
    name = command["namespace_id"]
    if command["type"] == "CreateNamespaceIfNotExists" and (NAMESPACE, name) in state.objects:
        return {}
    return _made(state, index, NAMESPACE, name, _other(command, "namespace_id"))


def _delete_namespace(state: MetaState, index: int, command: Command) -> Changed:
    found = state.get(NAMESPACE, command["namespace_id"])
    if state.has_tables(found.id):
        raise Refused("namespace not empty")
    return {found.key: None}


def _create_table(state: MetaState, index: int, command: Command) -> Changed:
    state.get(NAMESPACE, command["table_id"].partition(".")[0])
    if (TABLE, command["table_id"]) not in state.objects and command["primary_key"] not in command["columns"]:
        raise Refused("unknown column")
    return _made(state, index, TABLE, command["table_id"], _other(command, "table_id"))


def _alter_table(state: MetaState, index: int, command: Command) -> Changed:
    found = state.get(TABLE, command["table_id"])
    return _with(found, index, {"columns": list(dict.fromkeys((*found.definition["columns"], *command["add_columns"])))})


def _drop_table(state: MetaState, index: int, command: Command) -> Changed:
    return {state.get(TABLE, command["table_id"]).key: None}


def _register_storage(state: MetaState, index: int, command: Command) -> Changed:
    return _made(state, index, STORAGE, command["storage_id"], _other(command, "storage_id"))


def _unregister_storage(state: MetaState, index: int, command: Command) -> Changed:
    return {state.get(STORAGE, command["storage_id"]).key: None}


def _create_user(state: MetaState, index: int, command: Command) -> Changed:
    return _made(state, index, USER, command["user_id"], {"locked": False, **_other(command, "user_id")})


def _change_user(state: MetaState, index: int, command: Command) -> Changed:
    return _with(state.get(USER, command["user_id"]), index, _other(command, "user_id"))


def _record_login(state: MetaState, index: int, command: Command) -> Changed:
    return _with(state.get(USER, command["user_id"]), index, {"last_login": command["at"]})


def _delete_user(state: MetaState, index: int, command: Command) -> Changed:
    return {state.get(USER, command["user_id"]).key: None}


def _create_job(state: MetaState, index: int, command: Command) -> Changed:
    return _made(state, index, JOB, command["job_id"], {"status": "new", **_other(command, "job_id")})


def _change_job(state: MetaState, index: int, command: Command) -> Changed:
    return _with(state.get(JOB, command["job_id"]), index, {**_status(command), **_other(command, "job_id")})


def _create_job_node(state: MetaState, index: int, command: Command) -> Changed:
    state.get(JOB, command["job_id"])
    return _made(state, index, JOB_NODE, _node(command), {"status": "new", **_other(command)})


def _change_job_node(state: MetaState, index: int, command: Command) -> Changed:
    return _with(state.get(JOB_NODE, _node(command)), index, {**_status(command), **_other(command)})


def _node(command: Command) -> str:
    return f"{command['job_id']}/{command.get('node_id', '')}"


def _status(command: Command) -> dict[str, str]:
    """The status that a command leads to by itself; the others carry one."""
    after = {
        "ClaimJob": "claimed",
        "CompleteJob": "completed",
        "FailJob": "failed",
        "ReleaseJob": "new",
        "CancelJob": "cancelled",
        "ClaimJobNode": "claimed",
    }
    return {"status": after[command["type"]]} if command["type"] in after else {}


_RULES: Mapping[str, Callable[[MetaState, int, Command], Changed]] = {
    "CreateNamespace": _create_namespace,
    "CreateNamespaceIfNotExists": _create_namespace,
    "DeleteNamespace": _delete_namespace,
    "CreateTable": _create_table,
    "AlterTable": _alter_table,
    "DropTable": _drop_table,
    "RegisterStorage": _register_storage,
    "UnregisterStorage": _unregister_storage,
    "CreateUser": _create_user,
    "UpdateUser": _change_user,
    "DeleteUser": _delete_user,
    "RecordLogin": _record_login,
    "SetUserLocked": _change_user,
    "CreateJob": _create_job,
    "ClaimJob": _change_job,
    "UpdateJobStatus": _change_job,
    "CompleteJob": _change_job,
    "FailJob": _change_job,
    "ReleaseJob": _change_job,
    "CancelJob": _change_job,
    "CreateJobNode": _create_job_node,
    "ClaimJobNode": _change_job_node,
    "UpdateJobNodeStatus": _change_job_node,
}
