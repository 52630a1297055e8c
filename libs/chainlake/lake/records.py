"""What a lake has written down about itself: its ledger, chains, health and leases.

A local lake's records are read, and added to, without Spark, so `lake status` answers at once, whether a server runs or not.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from chainlake.errors import Unavailable
from chainlake.lake.chains import Chains
from chainlake.lake.control import ControlTables, ledger_is_gone
from chainlake.lake.deltalog import DeltaLog
from chainlake.lake.health import Health
from chainlake.lake.home import find_home, home_path
from chainlake.lake.ledger import Ledger
from chainlake.lake.names import Namespace
from chainlake.lake.session import is_local
from chainlake.lake.stage import Stage, Stages


class Records:
    """The control tables of one lake, and the stages that they are about."""

    def __init__(self, namespace: Namespace, control: ControlTables, log: DeltaLog, stages: Iterable[Stage]) -> None:
        self.namespace = namespace
        self.control = control
        self.ledger = Ledger(namespace, control, log)
        self.stages = Stages(tuple(stages))
        self.chains = Chains(control)
        self.health = Health(control)

    def chains_of(self, stage: Stage) -> list[str]:
        return sorted(name for name, chain in self.chains.all().items() if chain.kind == stage.kind)


def namespace_from(catalog: str = "", schema_prefix: str = "") -> Namespace:
    """The schemas of a lake; what is not given comes from the environment."""
    return Namespace(catalog or os.environ.get("LAKE_CATALOG", ""), schema_prefix or os.environ.get("LAKE_PREFIX", ""))


def lost_ledger(names: Namespace, warehouse: Path) -> Unavailable | None:
    """What is wrong with a lake that follows chains and has no ledger. While a lake is made, it follows none yet."""
    place = warehouse / f"{names.prefix}control"
    made = [(place / name / "_delta_log").is_dir() for name in ("ledger", "chains")]
    if made != [False, True] or not ControlTables(None, names, warehouse).read("chains"):
        return None
    return ledger_is_gone(place / "ledger", "control.chains")


def open_records(home: str | os.PathLike[str] | None = None) -> Records | None:
    """The records of the lake of a home, None if it has none yet; or those of a workspace, by way of its Spark."""
    from chainlake.stages import all_stages

    if not is_local():
        from chainlake.lake.lake import open_lake

        return open_lake(home)
    names, warehouse = namespace_from(), home_path(home) / "warehouse"
    ledger = warehouse / f"{names.prefix}control" / "ledger"
    control = ControlTables(None, names, warehouse)
    if not (ledger / "_delta_log").is_dir():
        find_home(home)  # a place where no lake can be is refused
        if lost := lost_ledger(names, warehouse):
            raise lost
        return None
    return Records(names, control, DeltaLog(None, names.control("ledger"), ledger), all_stages())
