"""The processes of the tour: start them, listen to what they report, end them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
END_SECONDS: Final = 10.0

Report = dict[str, Any]


class Player:
    """One process. Its standard output is a line of JSON for each report."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path, *, stays: bool) -> None:
        self.name = name
        self.stays = stays
        self.log = log
        self.ready = asyncio.Event()
        self._process = process
        self._hearing: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, name: str, *command: str, data: Path, hear: Callable[[Report], None], stays: bool) -> Player:
        """`stays`: it should go on until it is told to end."""
        log = data.parent / f"{name}.log"
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                *command,
                cwd=ROOT,
                env=os.environ | {"TUTTI_DATA": str(data), "TUTTI_URL": ""},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
            )
        player = cls(name, process, log, stays=stays)
        player._hearing = asyncio.create_task(player._hear(hear))
        return player

    async def _hear(self, hear: Callable[[Report], None]) -> None:
        stdout = self._process.stdout
        if stdout is None:
            return
        async for line in stdout:
            report = json.loads(line)
            if report.get("ready"):
                self.ready.set()
            else:
                hear(report)

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    @property
    def failed(self) -> bool:
        return self.exit_code is not None and (self.stays or self.exit_code != 0)

    async def end(self) -> int:
        """Ask it to stop; make it, if it does not. Returns its exit code."""
        with contextlib.suppress(ProcessLookupError):
            if self.exit_code is None:
                self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(END_SECONDS):
                code = await self._process.wait()
        except TimeoutError:
            self._process.kill()
            code = await self._process.wait()
        if self._hearing is not None:
            await self._hearing
        return code
