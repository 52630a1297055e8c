"""`lake doctor`: is everything in order here?"""

import argparse
from typing import Any

from chainlake.cli.show import emit, emit_json
from chainlake.errors import BadInput, CheckFailed


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    doctor = commands.add_parser(
        "doctor",
        parents=[common],
        help="check machine, Java, packages, disk, home and lake, and say what to do",
        epilog="example: lake doctor --json",
    )
    doctor.add_argument("--port", default="8545", metavar="N", help="port that lake serve is to have (default 8545)")
    doctor.add_argument("--json", action="store_true", help="one array of {subject, level, what, remedy}")
    doctor.set_defaults(run=_doctor)


def _doctor(given: argparse.Namespace) -> int:
    from chainlake.doctor import Level, examine
    from chainlake.lake.home import home_path

    if not (given.port.isascii() and given.port.isdigit() and 0 < len(given.port) <= 5 and int(given.port) < 1 << 16):
        raise BadInput(f"--port {given.port!r}: a number from 0 to 65535 is expected")
    found = examine(home_path(given.home), int(given.port))
    if given.json:
        emit_json([finding.to_json() for finding in found])
    else:
        width = max(len(finding.subject) for finding in found)
        for finding in found:
            remedy = f"; {finding.remedy}" if finding.remedy else ""
            emit(f"{finding.level.value:<8} {finding.subject:<{width}}  {finding.what}{remedy}")
    problems = [finding for finding in found if finding.level is Level.PROBLEM]
    if problems:
        raise CheckFailed(f"{len(problems)} {'problem' if len(problems) == 1 else 'problems'} found")
    return 0
