"""Finding the Java that Spark runs on. Spark 4 accepts 17 and 21.

Set-up runs this file before any package is installed, so it imports only the standard library and our errors.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from chainlake.errors import LakeError, Unavailable

ACCEPTED = (17, 21)
USUAL_PLACES = ("/usr/lib/jvm", "/opt/java", "/opt", "/Library/Java/JavaVirtualMachines", "~/.sdkman/candidates/java")


def java_home() -> Path:
    """The home of a Java 17 or 21: `JAVA_HOME` first, then `PATH`, then where installers put it."""
    found = find_java()
    if found is None:
        raise Unavailable("no Java 17 or 21 found: install openjdk-17-jre-headless or set JAVA_HOME to one")
    return found


def find_java() -> Path | None:
    """The first acceptable Java home, or None."""
    return next((home for home in _candidates() if java_version(home) in ACCEPTED), None)


def java_version(home: Path) -> int | None:
    """The major version that a Java home states in its `release` file (starting Java to ask it takes longer)."""
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    try:
        stated = re.search(r'^JAVA_VERSION="(\d+)', (home / "release").read_text(errors="replace"), re.MULTILINE)
    except OSError:
        return None
    return int(stated.group(1)) if stated else None


def _candidates() -> Iterator[Path]:
    if os.environ.get("JAVA_HOME"):
        yield Path(os.environ["JAVA_HOME"])
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path).resolve().parents[1]
    for place in USUAL_PLACES:
        for home in sorted(Path(place).expanduser().glob("*")):
            yield home
            yield home / "Contents" / "Home"


def main() -> int:
    """Print the Java home for set-up; exit 1 with the reason when there is none."""
    try:
        print(java_home())
    except LakeError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
