"""`lake …`: the command line. Errors are one line; exit code 2 means bad input, 1 a failed check."""


def main() -> int:
    """Run the command of this process. Imported only when called, so that `python -m chainlake.cli.main` loads it once."""
    from chainlake.cli.main import main as run

    return run()
