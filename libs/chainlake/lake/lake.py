"""The lake as people use it: one object with everything that one can do."""

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from chainlake.errors import BadInput, LakeError, Unavailable, some_of
from chainlake.lake import stopping
from chainlake.lake.catalog import Catalog
from chainlake.lake.chains import Chain, lasting
from chainlake.lake.gc import abandoned
from chainlake.lake.guardrail import Guardrail
from chainlake.lake.home import Home, find_home
from chainlake.lake.lease import Lease
from chainlake.lake.names import Namespace
from chainlake.lake.reader import Snapshot
from chainlake.lake.records import Records, namespace_from
from chainlake.lake.rollback import rollback
from chainlake.lake.runner import ChainSummary, LaneRun
from chainlake.lake.runs import Runs
from chainlake.lake.session import get_spark, is_local
from chainlake.lake.stage import Stage
from chainlake.lake.visibility import Commit
from chainlake.paths import tables_dir
from chainlake.sources.formats import DOMAIN_OF, check_options, format_of, network_of, placed

if TYPE_CHECKING:
    import pandas as pd

    from chainlake.sync.query import Notification


class Lake(Records):
    """Tables, stages and chains of one lake."""

    def __init__(
        self,
        spark: SparkSession,
        namespace: Namespace,
        location: Path | None,
        stages: Iterable[Stage],
        directories: Sequence[Path] = (),
    ) -> None:
        self.spark = spark
        self.catalog = Catalog(spark, namespace, location, directories)
        self.catalog.ensure()
        super().__init__(namespace, self.catalog.control, self.catalog.control_log("ledger"), stages)
        self.runs = Runs(self.control)
        self.pinned: Snapshot | None = None
        self._check_stages()

    # Reading

    def snapshot(self, tables: Iterable[str] | None = None) -> Snapshot:
        """The lake as it is now; whatever is read through it stays as it is now."""
        stages = None if tables is None else {stage for name in tables for stage in self.catalog.table(name).stages}
        return Snapshot(self.spark, self.catalog, self.ledger.read(stages))

    def moment(self, tables: Iterable[str]) -> Snapshot:
        """The moment at which to read tables that have to agree: the pinned one, else now. Writers go on meanwhile."""
        return self.pinned or self.snapshot(tables)

    def pin(self) -> Snapshot:
        """From here on, `table`, `history` and queries through `lake.sql` read this moment, until `unpin`: a whole notebook sees
        one state of the lake."""
        self.pinned = self.snapshot()
        return self.pinned

    def unpin(self) -> None:
        self.pinned = None

    def table(
        self,
        name: str,
        *,
        chain: str | None = None,
        height: int | None = None,
        seq: int | None = None,
        at: datetime | None = None,
    ) -> DataFrame:
        """Committed rows of a table: at the head, or as of a block, a ledger seq or a time."""
        return self.moment([name]).table(name, chain=chain, height=height, seq=seq, at=at)

    def history(self, name: str, *, chain: str | None = None) -> DataFrame:
        """Every visible row of a table with its `_height`, after-images and deletions included."""
        return self.moment([name]).history(name, chain=chain)

    def notifications(self, from_offset: int = 1, limit: int = 1_000, chain: str = "") -> "list[Notification]":
        """Events of streams from an offset on, in order. A consumer goes on with the last offset it has dealt with, plus 1."""
        from chainlake.sync.query import notifications

        return notifications(self, from_offset, limit, chain)

    # Chains and stages

    def chain(self, name: str) -> Chain:
        return self.chains.get(name)

    def add_chain(self, name: str, kind: str, source: str, options: Mapping[str, str] | None = None) -> Chain:
        """Follow a chain: remember where its blocks come from. A node that does not answer is not remembered."""
        check_options(kind, options or {})
        known, place = self.chains.all().get(name), os.path.abspath(source) if "://" not in source else source
        kept = lasting(known, place) if known and known.kind == kind else {}
        given = {**kept, **placed(options or {})}
        told = network_of(kind, format_of(kind).expand(source), given)
        if told is not None:
            given["chain_id"] = told
        self.chains.add(Chain(name, kind, place, given))
        return self.chain(name)

    def ingest(self, name: str, kind: str, source: str, options: Mapping[str, str] | None = None) -> "pd.DataFrame":
        """Follow a chain and take its blocks into raw."""
        self.add_chain(name, kind, source, options)
        return self.run_stage(f"raw.{DOMAIN_OF[kind]}", chains=name)

    def input_tables(self, stage: Stage) -> list[str]:
        return [table for name in stage.inputs for table in self.stages.get(name).tables]

    def run_stage(
        self,
        name: str,
        *,
        chains: str | Sequence[str] = (),
        max_blocks: int | None = None,
        max_rows: int | None = None,
        to_height: int | None = None,
    ) -> "pd.DataFrame":
        """Advance a stage over its chains until it has caught up (or reached a height). One row per chain tells what was done."""
        import pandas as pd

        stage = self.stages.get(name)
        self.chains.look_again()
        Guardrail(self.control).check(stage.name, partial(abandoned, self, stage.tables), stage.orphan_limits)
        degraded = self.health.degraded()
        wanted = [chains] if isinstance(chains, str) and chains else list(chains)
        summaries: list[ChainSummary] = []
        outages: list[LakeError] = []
        limits = (max_blocks or stage.max_blocks, max_rows or stage.max_rows, to_height)
        try:
            with stopping.listening():
                for lane, members in self._lanes(stage, wanted).items():
                    try:
                        summaries += self._run_lane(stage, lane, members, degraded, limits)
                    except (BadInput, Unavailable) as outage:  # of one source: the others go on
                        outages.append(outage)
        finally:
            self.runs.close()
        if len(outages) == 1:
            raise outages[0]
        if outages:
            again = any(isinstance(outage, Unavailable) for outage in outages)  # may help
            raise (Unavailable if again else BadInput)("; ".join(map(str, outages)))
        return pd.DataFrame([vars(summary) for summary in summaries], columns=list(vars(ChainSummary("", ""))))

    def require_healthy(self, stage: str) -> None:
        """Raise Degraded if a chain of the stage is."""
        self.health.require(stage, self.chains_of(self.stages.get(stage)))

    def rollback(self, stage: str, chain: str, height: int, *, why: str, force: bool = False) -> list[Commit]:
        """Take a stage, and all that consumed it, back to a height."""
        return rollback(self, stage, chain, height, why, force)

    def lease(self, stage: str, lane: str) -> Lease:
        """The right to write a lane, while inside `with`."""
        return Lease(self.control, self.ledger, self.catalog.control_log("leases"), stage, lane)

    def _check_stages(self) -> None:
        """A stage writes exactly the tables that name it; otherwise its rows would never be seen."""
        for stage in self.stages.all():
            declared = {table.name for table in self.catalog.of_stage(stage.name)}
            if declared != set(stage.tables):
                raise BadInput(
                    f"{stage.name} writes {sorted(stage.tables)}, but tables/ says {sorted(declared)}: make them agree"
                )

    def _lanes(self, stage: Stage, wanted: Sequence[str]) -> dict[str, list[str]]:
        known = self.chains_of(stage)
        for chain in wanted:
            if chain not in known:
                raise BadInput(f"{stage.name} has no chain {chain!r}: there are {some_of(known)}")
        lanes: dict[str, list[str]] = {}
        for chain in wanted or known:
            lanes.setdefault(stage.lane_of(chain), []).append(chain)
        return lanes

    def _run_lane(
        self,
        stage: Stage,
        lane: str,
        members: Sequence[str],
        degraded: Mapping[tuple[str, str], str],
        limits: tuple[int, int, int | None],
    ) -> list[ChainSummary]:
        stopped = [
            ChainSummary(stage.name, chain, status="degraded", error=degraded[stage.name, chain])
            for chain in members
            if (stage.name, chain) in degraded
        ]
        going = [chain for chain in members if (stage.name, chain) not in degraded]
        if not going:
            return stopped
        lease = self.lease(stage.name, lane)
        run = (stage.runner or LaneRun)(self, stage, going, lease, *limits)
        if run.has_work():
            with lease:
                run.run()
                self.runs.flush()
        return stopped + run.summary()


def open_lake(
    home: str | os.PathLike[str] | None = None,
    *,
    catalog: str = "",
    schema_prefix: str = "",
    stages: Iterable[Stage] = (),
    directories: Sequence[Path] = (),
    standard: bool = True,
) -> Lake:
    """Open the lake of a home (local) or of a catalog and schema prefix (Databricks; default: from the environment).

    `stages` and `directories` (of table declarations) come beside those of the five domains, or with `standard=False` instead.
    """
    from chainlake.stages import all_stages

    names = namespace_from(catalog, schema_prefix)
    every = (*all_stages(), *stages) if standard else tuple(stages)
    places = [tables_dir(), *directories] if standard else list(directories)
    if not is_local():
        return Lake(get_spark(), names, None, every, places)
    place: Home = find_home(home)
    return Lake(get_spark(place), names, place.warehouse, every, places)
