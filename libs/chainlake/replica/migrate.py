"""From three Meta logs to one: a snapshot of what the three have made is the first entry of the united log.

Its index counts on from the entries of the three logs, so that the Meta index never goes back. Data logs stay as they are: their
commands have no watermark and behave as before, and whatever the leader appends from then on is stamped. There is no way back: a
stamped command needs the one log that its stamp counts.
"""

from collections.abc import Iterable

from chainlake.errors import BadInput, BrokenPromise
from chainlake.replica.commands import command_text
from chainlake.replica.entries import Entry
from chainlake.replica.groups import META, OLD_META
from chainlake.replica.meta import MetaObject
from chainlake.replica.replica import Replica


def snapshot_entry(objects: list[MetaObject], index: int, term: int) -> Entry:
    """The entry that makes Meta what the objects say."""
    held = [
        {
            "kind": one.kind,
            "id": one.id,
            "definition": dict(one.definition),
            "created_index": one.created_index,
            "updated_index": one.updated_index,
        }
        for one in sorted(objects)
    ]
    return Entry(META, index, term, {"type": "Snapshot", "objects": held})


def unite(replica: Replica) -> Entry:
    """The snapshot that unites the Meta logs of a replica that runs the old three. One that is too long for a command is refused
    here: appended, it would stop all replicas."""
    check_can_unite(replica.unified, {group: index for group, (index, _) in replica.applied().items()})
    terms = [term for _, term in replica.applied().values()]
    made = snapshot_entry(list(replica.meta.objects.values()), replica.meta_index + 1, max(terms, default=1))
    command_text(made.command)
    return made


def check_can_unite(unified: bool, applied: dict[str, int]) -> None:
    """Refuses a second migration, and one of nothing."""
    if unified:
        raise BadInput("the Meta logs are united already: there is no second migration and no way back")
    if not any(applied.get(group) for group in OLD_META):
        raise BadInput("the three Meta logs are empty: start with unified_meta=true instead")


def starts_unified(flag: bool, groups: Iterable[str]) -> bool:
    """Whether a replica that has entries of these groups started with one Meta log. What it has decides: the option may be set
    anew, or forgotten, whenever its chain is ingested again."""
    return flag and not any(group in OLD_META for group in groups)


def check_flag(chain: str, was: bool, wanted: bool) -> None:
    """Refuses to go back to the three logs. Other replicas of the lake go on."""
    if was and not wanted:
        raise BrokenPromise(
            f"{chain}: unified_meta cannot go back to false, as stamped commands count on the one Meta log: "
            "ingest it with unified_meta=true and resume it, or start a new replica"
        )
