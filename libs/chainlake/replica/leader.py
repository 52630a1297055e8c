"""The leader's path: a command is stamped with the Meta index that the leader has applied, routed to its group, and appended."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from chainlake.errors import BadInput
from chainlake.replica.commands import ANY, COMMANDS, DATA, Command, check_group, command_text, read_command
from chainlake.replica.entries import Entry
from chainlake.replica.groups import META, OLD_META, SHARED, group_of


@dataclass
class Leader:
    """Where the logs end, and how far Meta is applied: all that a leader needs to propose."""

    term: int = 1
    ends: dict[str, int] = field(default_factory=dict)
    meta_index: int = 0
    unified: bool = True

    def propose(self, given: Mapping[str, Any], group: str | None = None) -> Entry:
        """The entry that a command becomes. Meta counts as applied at once: a leader applies what it appends. While Meta is empty
        there is nothing to stamp with, and no table either: 0 would mean that replicas may run it against any Meta."""
        command = stamped(read_command(dict(given)), self.meta_index if self.unified else 0)
        target = route(command, self.unified, group)
        if self.unified and COMMANDS[command["type"]].log == DATA and "required_meta_index" not in command:
            raise BadInput(f"{command['type']} needs a Meta index, and Meta is empty: propose its namespace and table first")
        command_text(command)
        self.ends[target] = self.ends.get(target, 0) + 1
        if target == META:
            self.meta_index = self.ends[target]
        return Entry(target, self.ends[target], self.term, command)


def stamped(command: Command, meta_index: int) -> Command:
    """A data command with the Meta index that it needs. A stamp that it has already may ask for more, never for less."""
    if COMMANDS[command["type"]].log != DATA:
        return command
    return read_command({**command, "required_meta_index": max(meta_index, command.get("required_meta_index", 0))})


def route(command: Command, unified: bool = True, group: str | None = None) -> str:
    """The group whose log takes a command. Blank and Membership entries say which."""
    log = COMMANDS[command["type"]].log
    if log == ANY:
        if group is None:
            raise BadInput(f"{command['type']} may stand in any log: say in which group")
        check_group(group)
        return _in_use(group, unified)
    wanted = META if unified else log
    if log == DATA:
        wanted = group_of(command["user_id"]) if "user_id" in command else SHARED
    if group not in (None, wanted):
        raise BadInput(f"{command['type']} goes to {wanted}, not to {group}: leave the group out")
    return _in_use(wanted, unified)


def _in_use(group: str, unified: bool) -> str:
    """The group, if a leader appends to it: to the three Meta logs until they are united, then to the one."""
    if group == META and not unified:
        raise BadInput("meta is not in use yet: lake replica migrate unites the three Meta logs with a Snapshot")
    if group in OLD_META and unified:
        raise BadInput(f"{group} is not in use: Meta is the one log meta")
    return group
