"""What all of `lake prove` has in common: at which block, in which form, and how a proof is shown."""

import argparse
import sys
from typing import Any, Protocol

from chainlake.cli.show import emit_json


class Provable(Protocol):
    """A proof as JSON, and in the bytes that its verifiers take."""

    def to_json(self, chain: str) -> dict[str, Any]: ...

    @property
    def proof(self) -> Any: ...


def add_form(parser: argparse.ArgumentParser, raw: str) -> None:
    """`--height` and `--raw`; the text says what the raw form is."""
    parser.add_argument("--height", metavar="N", help="after this block (default: the last one)")
    parser.add_argument("--raw", action="store_true", help=f"{raw}, nothing else")


def show_proof(given: argparse.Namespace, proven: Provable) -> int:
    """The proof in the form that was asked for."""
    if given.raw:
        sys.stdout.buffer.write(proven.proof.to_bytes())
        sys.stdout.buffer.flush()
    else:
        emit_json(proven.to_json(given.chain))
    return 0
