"""Delta tables opened without Spark, by delta-rs. (Its class shares its name with the one of delta-spark, which nothing here may
use since it does not speak Spark Connect: so it has this room to itself.)"""

from pathlib import Path

from deltalake import DeltaTable

DeltaRs = DeltaTable


def open_table(path: Path) -> DeltaRs:
    """The table as it is now."""
    return DeltaRs(str(path))
