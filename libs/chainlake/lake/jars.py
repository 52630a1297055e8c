"""The Delta JARs that pip's pyspark lacks: resolved once into a cache, then passed as `spark.jars`.

Resolving at every session start would cost seconds and need a network. A `complete` file with the name and size of
every JAR is written last, so that an interrupted download or a damaged cache is never taken for a good one.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from chainlake.errors import LakeError, Unavailable
from chainlake.lake.java import java_home

MARKER = "complete"
LOG = "resolve.log"

# Dependencies of Delta that pyspark already ships; a second copy on the class path could be of another version.
SHIPPED_WITH_SPARK = (
    "com.fasterxml.jackson.core:jackson-annotations",
    "com.fasterxml.jackson.core:jackson-core",
    "com.fasterxml.jackson.core:jackson-databind",
    "com.fasterxml.jackson.datatype:jackson-datatype-jdk8",
    "com.google.code.findbugs:jsr305",
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.apache.logging.log4j:log4j-api",
    "org.apache.logging.log4j:log4j-core",
    "org.apache.logging.log4j:log4j-slf4j2-impl",
    "org.apache.parquet:parquet-hadoop",
    "org.locationtech.jts:jts-core",
    "org.roaringbitmap:RoaringBitmap",
    "org.slf4j:slf4j-api",
)


def delta_jars(cache: Path | None = None) -> list[Path]:
    """The JARs to put on Spark's class path, resolving them first if the cache lacks any. Safe to call concurrently."""
    home = _place(cache)
    jars = _complete_jars(home)
    if jars is None:
        with _one_at_a_time(home):
            jars = _complete_jars(home) or _resolve_into(home)
    return jars


def cached_jars(cache: Path | None = None) -> list[Path] | None:
    """The JARs if all of them are in the cache; None if Spark would have to fetch some."""
    return _complete_jars(_place(cache))


def default_cache() -> Path:
    """The user's cache folder, shared by every checkout."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "chainlake"


def artifact() -> str:
    """Delta's Maven coordinates for the installed pyspark and delta-spark."""
    spark = ".".join(version("pyspark").split(".")[:2])
    return f"io.delta:delta-spark_{spark}_2.13:{version('delta-spark')}"


def _place(cache: Path | None) -> Path:
    return (cache or default_cache()) / f"jars-{version('delta-spark')}"


def _complete_jars(home: Path) -> list[Path] | None:
    """The JARs that the marker lists, or None if the marker is absent or any JAR is not as it says."""
    try:
        lines = (home / MARKER).read_text().splitlines()
        listed = [(home / name, int(size)) for size, name in (line.split(maxsplit=1) for line in lines)]
        intact = bool(listed) and all(jar.stat().st_size == size for jar, size in listed)
    except (OSError, ValueError):
        return None
    return [jar for jar, _ in listed] if intact else None


@contextmanager
def _one_at_a_time(home: Path) -> Iterator[None]:
    """Other processes that want the same JARs wait here and then find them."""
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        lock = (home.parent / f"{home.name}.lock").open("w")
    except OSError as error:
        raise Unavailable(f"cannot write the JAR cache {home.parent}: {error.strerror}; set XDG_CACHE_HOME") from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _resolve_into(home: Path) -> list[Path]:
    """Download to a sibling folder, then put it in place by a rename."""
    partial = home.parent / f"{home.name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    downloaded = _download(partial / "ivy")
    for jar in downloaded:
        shutil.move(jar, partial / jar.name)
    shutil.rmtree(partial / "ivy")
    lines = [f"{(partial / jar.name).stat().st_size} {jar.name}\n" for jar in downloaded]
    (partial / MARKER).write_text("".join(lines))
    shutil.rmtree(home, ignore_errors=True)
    partial.rename(home)
    return [home / jar.name for jar in downloaded]


def _download(ivy: Path) -> list[Path]:
    """Let spark-submit resolve Delta while it runs an empty script; its output is kept in a log beside."""
    script = ivy.parent / "empty.py"
    script.write_text("")
    log = ivy.parents[1] / LOG
    with log.open("w") as output:
        result = subprocess.run(_command(ivy, script), env=_environment(), stdout=output, stderr=output, check=False)
    script.unlink()
    jars = sorted((ivy / "jars").glob("*.jar"))
    if result.returncode != 0 or not jars:
        raise Unavailable(f"could not fetch {artifact()}: {_reason(log)}; the full output is in {log}")
    return jars


def _command(ivy: Path, script: Path) -> list[str]:
    submit = str(_spark_home() / "bin" / "spark-submit")
    excluded = ",".join(SHIPPED_WITH_SPARK)
    packages = ["--packages", artifact(), "--exclude-packages", excluded, "--conf", f"spark.jars.ivy={ivy}"]
    return [submit, *packages, "--conf", "spark.ui.enabled=false", str(script)]


def _spark_home() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise Unavailable("pyspark is not installed: run make setup")
    return Path(spec.origin).parent


def _environment() -> dict[str, str]:
    """This process's environment without the settings of another Spark (`SPARK_REMOTE`, `SPARK_CONF_DIR` …)."""
    spark = {"SPARK_HOME": str(_spark_home()), "JAVA_HOME": str(java_home()), "PYSPARK_PYTHON": sys.executable}
    options = " ".join([os.environ.get("SPARK_SUBMIT_OPTS", ""), *_proxy_options()]).strip()
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    return {**inherited, **spark, "SPARK_SUBMIT_OPTS": options}


def _proxy_options() -> list[str]:
    """Java ignores `HTTPS_PROXY`, which pip obeys; where people set it, both have to go the same way."""
    proxy = urlsplit(os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy") or "")
    if not proxy.hostname:
        return []
    return [f"-Dhttps.proxyHost={proxy.hostname}", f"-Dhttps.proxyPort={proxy.port or 80}"]


def _reason(log: Path) -> str:
    """What the resolver says went wrong, without its stack trace."""
    text = log.read_text(errors="replace")
    if "unresolved dependency" in text or "UNRESOLVED DEPENDENCIES" in text:
        return "the Maven registry cannot be reached or lacks it"
    errors = [line.strip() for line in text.splitlines() if "ERROR" in line or "Exception" in line]
    return errors[0][:160] if errors else "spark-submit gave no JARs"


def main() -> int:
    """Fill the cache for set-up; exit 1 with one line when that is impossible."""
    try:
        jars = delta_jars()
    except LakeError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(f"{len(jars)} JARs in {jars[0].parent}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
