"""The commands: `tutti up`, `run`, `publish`, `tail`, `types`, `dead`, `subscribers`, `doctor`."""

from __future__ import annotations

import os
import sys
from typing import Final, NoReturn

INTERRUPTED: Final = 130  # as shells count: 128 and the number of SIGINT


def main() -> NoReturn:
    """The console script."""
    try:
        _open_standard_files()
        from tutti.cli.app import start  # noqa: PLC0415  importing this package alone should stay cheap

        code = start()
    except KeyboardInterrupt:  # before a command had begun
        code = INTERRUPTED
    raise SystemExit(code)


def _open_standard_files() -> None:
    """Who closed one of them (`tutti … >&-`) wants nothing from it. Another file must not get its number, though."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number, which is this one
    sys.stdin = sys.stdin or os.fdopen(0, "r")
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


__all__ = ["main"]
