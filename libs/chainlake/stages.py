"""Every stage of the lake, inputs before what consumes them."""

from chainlake.cage.stages import cage_stages
from chainlake.lake.stage import Stage
from chainlake.logs.decoded import decoded_stage
from chainlake.logs.stages import log_stages
from chainlake.raw.stages import raw_stages


def all_stages() -> tuple[Stage, ...]:
    """The stages in order."""
    return (*raw_stages(), *log_stages(), decoded_stage(), *cage_stages())
