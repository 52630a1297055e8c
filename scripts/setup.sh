#!/usr/bin/env bash
# Everything that `make run` and `make test` need, once: .venv with the pinned packages, Java 17 or 21, Delta's JARs.
# When it is all there this only compares a stamp. What fails is named in one line; the full output is in .venv/setup.log.
#
#   scripts/setup.sh           set up what is missing
#   scripts/setup.sh --check   exit 0 if there is nothing to do, 1 if there is
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VENV=.venv
LOG=$VENV/setup.log
STAMP=$VENV/.stamp # written when every package is in; removed before anything is changed

say() { echo "set-up: $*" >&2; }
die() { say "$*"; exit 1; }

delta_version() { sed -n 's/^delta-spark==//p' requirements.txt; }

jars_complete() {
  local cache=${XDG_CACHE_HOME:-~/.cache} # ~ is known where HOME is not set
  [ -f "$cache/chainlake/jars-$(delta_version)/complete" ]
}

# What the environment is made from: the folder, the Python, and the files that say what to install.
wanted_stamp() {
  pwd -P # by whatever link one came here
  grep -i '^version' "$VENV/pyvenv.cfg"
  cksum requirements.txt pyproject.toml setup.py scripts/setup.sh
}

packages_current() { [ -x "$VENV/bin/python" ] && [ -f "$STAMP" ] && wanted_stamp | cmp -s - "$STAMP"; }
nothing_to_do() { packages_current && jars_complete; }

# How to become root here without asking; fails where that, or apt, is not given.
as_root() {
  command -v apt-get >/dev/null || return 1
  if [ "$(id -u)" = 0 ]; then echo env; else sudo -n true 2>/dev/null && echo "sudo -n env"; fi
}

apt_install() {
  local root
  root=$(as_root) || return 1
  say "installing $1 …"
  # An update that fails (no network) need not stop an install from what is already there. A new machine may be upgrading itself,
  # or be set up in another folder too: the install waits for its turn.
  $root DEBIAN_FRONTEND=noninteractive apt-get update >>"$LOG" 2>&1 || true
  $root DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300 "$1" >>"$LOG" 2>&1
}

python_can() { "$1" -c "import sys; assert sys.version_info >= (3, 10); import $2" >/dev/null 2>&1; }

# The first Python 3.10+ that can make environments, else the first one at all.
find_python() {
  local candidate module
  for module in ensurepip sys; do
    for candidate in "${PYTHON:-}" python3.12 python3.11 python3.10 python3; do
      if python_can "$candidate" "$module"; then
        command -v "$candidate"
        return
      fi
    done
  done
  return 1
}

make_venv() {
  local python version
  python=$(find_python) || die "no Python 3.10 or newer found: install python3 and python3-venv, or set PYTHON to one"
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  rm -rf "$VENV" 2>/dev/null || die "cannot replace $PWD/$VENV: remove it as the user who made it"
  mkdir "$VENV"
  if ! python_can "$python" ensurepip; then
    apt_install "python$version-venv" || die "Python $version cannot make virtual environments: install python$version-venv"
  fi
  "$python" -m venv "$VENV" >>"$LOG" 2>&1 || die "could not create $VENV with $python: $(tail -n 1 "$LOG"); see $LOG"
}

# The library's own finder, run from its file because the package's dependencies are not installed yet.
find_java() {
  PYTHONPATH=libs "$VENV/bin/python" -c \
    'import runpy; runpy.run_path("libs/chainlake/lake/java.py", run_name="__main__")' >>"$LOG" 2>&1
}

ensure_java() {
  find_java && return
  apt_install openjdk-17-jre-headless || apt_install openjdk-21-jre-headless || true
  find_java || die "Spark needs Java 17 or 21: install openjdk-17-jre-headless, or set JAVA_HOME to one"
}

# What pip could not get, and why, from its own words.
pip_failure() {
  local what
  what=$(grep -oE '(No matching distribution found for|satisfies the requirement|Failed building wheel for) [^ ]+' "$LOG" |
    tail -n 1 | awk '{print $NF}') || true
  if grep -q 'No space left on device' "$LOG"; then
    echo "the disk is full"
  elif grep -qE 'Retrying \(|ConnectionError|ConnectTimeout|ReadTimeout|ProxyError|SSLError' "$LOG"; then
    echo "package registry unreachable while fetching ${what:-packages}"
  elif grep -q 'No matching distribution' "$LOG"; then
    echo "no matching distribution of $what"
  else
    grep -iE '^ *error' "$LOG" | tail -n 1 | cut -c1-160
  fi
}

pip_install() {
  "$VENV/bin/python" -m pip install --disable-pip-version-check --no-input "$@" >>"$LOG" 2>&1 ||
    die "could not install Python packages: $(pip_failure); see $LOG"
}

ensure_packages() {
  if packages_current; then return; fi
  # Only an environment that was once complete, in this folder, is worth changing in place.
  if ! [ -x "$VENV/bin/python" ] || [ "$(head -n 1 "$STAMP" 2>/dev/null)" != "$(pwd -P)" ]; then make_venv; fi
  rm -f "$STAMP"
  : >"$LOG"
  ensure_java
  say "installing Python packages (once, about 3 minutes) …"
  pip_install -r requirements.txt
  pip_install --no-deps --no-build-isolation --editable .
  wanted_stamp >"$STAMP.new"
  mv "$STAMP.new" "$STAMP"
}

ensure_jars() {
  if jars_complete; then return; fi
  say "fetching Delta's JARs (once) …"
  "$VENV/bin/python" -m chainlake.lake.jars >"$LOG" 2>&1 || die "$(tail -n 1 "$LOG")"
}

main() {
  if nothing_to_do; then exit 0; fi
  if [ "${1:-}" = --check ]; then exit 1; fi
  exec 9<scripts/setup.sh
  if command -v flock >/dev/null; then flock 9; fi # two at once in one folder: the second waits and finds it done
  ensure_packages
  ensure_jars
  say "done"
}

main "$@"
