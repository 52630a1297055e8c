"""Every stage of the lake, inputs before what consumes them."""

from chainlake.cage.stages import cage_stages
from chainlake.lake.stage import Stage
from chainlake.logs.decoded import decoded_stage
from chainlake.logs.stages import log_stages
from chainlake.raw.stages import raw_stages
from chainlake.replica.stages import replica_stages
from chainlake.shards.stages import shard_stages
from chainlake.sync.stages import sync_stages


def all_stages() -> tuple[Stage, ...]:
    """The stages in order."""
    domains = (*shard_stages(), *cage_stages(), *replica_stages(), *sync_stages())
    return (*raw_stages(), *log_stages(), decoded_stage(), *domains)
