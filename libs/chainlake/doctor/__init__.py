"""`lake doctor`: whether this machine and this lake are in order, and what to do where they are not. Starts no Spark."""

from chainlake.doctor.examine import examine
from chainlake.doctor.finding import Finding, Level

__all__ = ["Finding", "Level", "examine"]
