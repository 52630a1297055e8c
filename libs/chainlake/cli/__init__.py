"""`lake …`: the command line. Errors are one line; exit code 2 means bad input, 1 a failed check."""

from chainlake.cli.main import main

__all__ = ["main"]
