"""The stage that merges small segments of the index into larger ones. Readers take either: the answer is the same."""

from collections.abc import Mapping

from chainlake.errors import BrokenPromise
from chainlake.lake.clock import now
from chainlake.lake.runner import LaneRun, Timings
from chainlake.lake.stage import Batch
from chainlake.logs.rules import Merge, MergePolicy, next_merge
from chainlake.logs.segments import merge_segments, nothing_merged, segments_of


class MergeRun(LaneRun):
    """Merges while a merge is due."""

    policy = MergePolicy()

    def available(self) -> dict[str, tuple[int, int]]:
        """The next range to merge, if a merge is due."""
        self.merges = {chain: merge for chain in self.active() if (merge := self._next(chain)) is not None}
        return {chain: (merge.base, merge.height) for chain, merge in self.merges.items()}

    def plan(self) -> dict[str, tuple[int, int]]:
        return self.available()

    def advance(self, ranges: Mapping[str, tuple[int, int]], timings: Timings) -> None:
        """Merge, take back what was merged again, pass over what is large. Segments that are damaged are not merged: what was
        merged of them before stays."""
        for chain, merge in self.merges.items():
            batch = Batch(self.lake.spark, self.snapshot(), {chain: (merge.base, merge.height)}, self.options)
            try:
                with timings.phase("transform"):
                    output = merge_segments(batch)
            except BrokenPromise as error:
                self.degrade(error, [chain], timings)
                continue
            if merge.back_to is not None:
                self.roll_back({chain: (merge.back_to, "to be merged again, with what came after it")})
            head = self.head(chain)
            at = head.height if head else self._first(chain)
            if at < merge.base:
                self.write({chain: (at, merge.base)}, nothing_merged(batch), {chain: self.hash_at(chain, merge.base)}, Timings())
            self.write({chain: (merge.base, merge.height)}, output, {chain: self.hash_at(chain, merge.height)}, timings)

    def _next(self, chain: str) -> Merge | None:
        head = self.head(chain)
        index, merged = self.view.of("gold.logs", chain), self.view.of(self.stage.name, chain)
        return next_merge(
            segments_of(index), segments_of(merged, only_merged=True), head.height if head else None, now(), self.policy
        )

    def _first(self, chain: str) -> int:
        first = self.view.of("gold.logs", chain).first_height()
        assert first is not None
        return first
