"""How many bytes of answers may be in memory at once: those that batches collect, and those that slow readers keep waiting."""


class Budget:
    """A number of bytes, shared by all connections. Used from the event loop only."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.used = 0

    def take(self, size: int) -> bool:
        """Whether there is room for so many bytes; then they count until they are given back."""
        if size and self.used + size > self._most:
            return False
        self.used += size
        return True

    def force(self, size: int) -> None:
        """Count bytes that cannot be done without: an error is short."""
        self.used += size

    def give(self, size: int) -> None:
        self.used -= size
