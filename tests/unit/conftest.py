"""Settings of the tests that start no Spark."""

from hypothesis import settings

# A busy machine is no reason to fail.
settings.register_profile("chainlake", deadline=None)
settings.load_profile("chainlake")
