"""How many partitions and files a batch deserves: entries come in few files, and are many."""

ROWS_PER_PART, ROWS_PER_FILE, MOST_PARTS = 25_000, 250_000, 8


def partitions(rows: int) -> int:
    """Partitions for so many rows: what is done to a row in Python takes long, so that few rows make one."""
    return max(1, min(MOST_PARTS, rows // ROWS_PER_PART))


def files(rows: int) -> int:
    """Files for so many rows: writing is quick, and Delta packs many small files again soon."""
    return max(1, min(MOST_PARTS, rows // ROWS_PER_FILE))
