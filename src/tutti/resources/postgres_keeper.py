"""Runs one PostgreSQL program for as long as somebody holds the other end of its standard input, then ends it.

This file runs alone, as `python -I -S postgres_keeper.py <uid> <gid> <program> [argument…]`: it imports the standard
library only. It says the process id of the program on its standard output, and ends with the program's status.

PostgreSQL refuses to run as root. Where the starter is root (containers), `uid` names somebody else; the program then
keeps one right of root, to pass folders that are closed to others, because data folders and virtual environments often
lie in such. Nothing on the disk has to be opened for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import struct
import subprocess
import sys
from typing import Final

ENDING_SECONDS: Final = 20.0  # for a checkpoint of much data; then at once, and the next start recovers
_TICK_SECONDS: Final = 0.05

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_KEEPCAPS: Final = 8
_PR_SET_SECUREBITS: Final = 28
_SECBIT_NO_SETUID_FIXUP: Final = 4  # else access() ignores the right that is kept, and initdb asks by access()
_PR_CAP_AMBIENT: Final = 47
_PR_CAP_AMBIENT_RAISE: Final = 2
_CAPABILITY_VERSION_3: Final = 0x20080522
_CAP_DAC_OVERRIDE: Final = 1


def become(uid: int, gid: int) -> None:
    """Give up root for good. Without the right to pass closed folders, the program says itself which it cannot read."""
    libc = ctypes.CDLL(None, use_errno=True)
    linux = sys.platform == "linux"
    if linux:
        libc.prctl(_PR_SET_SECUREBITS, _SECBIT_NO_SETUID_FIXUP, 0, 0, 0)
        libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    if linux:
        header = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITY_VERSION_3, 0))
        mask = 1 << _CAP_DAC_OVERRIDE
        sets = ctypes.create_string_buffer(struct.pack("=6I", mask, mask, mask, 0, 0, 0))
        if libc.capset(header, sets) == 0:
            libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_OVERRIDE, 0, 0)


def die_with_keeper() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGQUIT), 0, 0, 0)


def keep(command: list[str]) -> int:
    """Run it; when the standard input ends, end it in order, and at once if that takes too long."""
    program = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2, stderr=2, preexec_fn=die_with_keeper)  # noqa: PLW1509  this process has no other thread
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: program.send_signal(signal.SIGINT))
    with contextlib.suppress(BrokenPipeError):
        os.write(1, b"%d\n" % program.pid)
    while program.poll() is None:
        ready, _, _ = select.select([0], [], [], _TICK_SECONDS)
        if ready and not os.read(0, 1):
            return _end(program)
    return program.returncode


def _end(program: subprocess.Popen[bytes]) -> int:
    program.send_signal(signal.SIGINT)
    try:
        return program.wait(ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        program.send_signal(signal.SIGQUIT)
        return program.wait()


if __name__ == "__main__":
    user, group = int(sys.argv[1]), int(sys.argv[2])
    if user != os.geteuid():
        become(user, group)
    status = keep(sys.argv[3:])
    sys.exit(status if status >= 0 else 128 - status)
