"""A strict reader of the CBOR that proofs are made of: every item in its shortest form, nothing left unread."""

from chainlake.errors import BadInput

UNSIGNED, BYTES, LIST = 0, 2, 4


class CborReader:
    """Reads one proof from its bytes. `BadInput` at the first byte that does not belong."""

    def __init__(self, data: bytes, most: int) -> None:
        if len(data) > most:
            raise BadInput(f"a proof of {len(data)} bytes is given, and none has more than {most}: it is not one")
        self._data = data
        self._at = 0

    def unsigned(self) -> int:
        return self._head(UNSIGNED)

    def octets(self) -> bytes:
        """A byte string of definite length."""
        return self.raw(self._head(BYTES))

    def list_of(self) -> int:
        """The length of a list of definite length."""
        return self._head(LIST)

    def raw(self, size: int) -> bytes:
        """So many bytes as they are."""
        found = self._data[self._at : self._at + size]
        if len(found) != size:
            raise self.refuse("ends too early")
        self._at += size
        return found

    def expect(self, literal: bytes) -> None:
        if not self.follows(literal):
            raise self.refuse(f"should have {literal.hex()}")

    def follows(self, literal: bytes) -> bool:
        """Whether these bytes come next; if so they are read."""
        if not self._data.startswith(literal, self._at):
            return False
        self._at += len(literal)
        return True

    def end(self) -> None:
        if self._at != len(self._data):
            raise self.refuse("should have ended")

    def refuse(self, why: str) -> BadInput:
        return BadInput(f"the proof {why} at byte {self._at} of {len(self._data)}: get it again from where it was made")

    def _head(self, kind: int) -> int:
        first = self.raw(1)[0]
        major, short = first >> 5, first & 31
        if major != kind or short > 27:
            raise self.refuse(f"has 0x{first:02x} where another kind of item belongs")
        if short < 24:
            return short
        size = 1 << short - 24
        value = int.from_bytes(self.raw(size), "big")
        if value < (24 if size == 1 else 1 << 4 * size):
            raise self.refuse("has a number that is not in its shortest form")
        return value
