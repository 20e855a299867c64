"""The processes: start them, listen to what they log, end them, kill them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[3]
END_SECONDS: Final = 10.0
_TAIL_CHARACTERS: Final = 1_500

Hear = Callable[[str, Mapping[str, Any]], None]


class Player:
    """One process. Its standard error is a log record in JSON for each line."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.ready = asyncio.Event()
        self.said: list[str] = []
        self._process = process
        self._hearing: list[asyncio.Task[None]] = []
        self._last = ""

    @classmethod
    async def start(cls, name: str, *command: str, hear: Hear, environment: Mapping[str, str]) -> Player:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            *command,
            cwd=ROOT,
            env=os.environ | environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=2**20,
        )
        player = cls(name, process)
        player._hearing = [asyncio.create_task(player._hear_words()), asyncio.create_task(player._hear_log(hear))]
        return player

    async def _hear_words(self) -> None:
        assert self._process.stdout is not None  # noqa: S101  for the type checker: it is a pipe
        async for line in self._process.stdout:
            words = line.decode(errors="replace").strip()
            if words.startswith(('{"ready":true', '{"ready": true')):
                self.ready.set()
            else:
                self.said.append(words)

    async def _hear_log(self, hear: Hear) -> None:
        assert self._process.stderr is not None  # noqa: S101  as above
        async for line in self._process.stderr:
            try:
                record = json.loads(line)
            except ValueError:
                self._last = (self._last + line.decode(errors="replace"))[-_TAIL_CHARACTERS:]
            else:
                if record.get("level") == "error":
                    self._last = f"{record.get('message')} {record.get('traceback', '')}"[-_TAIL_CHARACTERS:]
                hear(self.name, record)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    @property
    def trouble(self) -> str:
        """What it wrote that is no log record: a traceback, as a rule."""
        return self._last.strip()

    async def kill(self) -> None:
        """SIGKILL: no farewell, no flush."""
        os.kill(self.pid, signal.SIGKILL)
        await self.wait()

    async def wait(self) -> int:
        code = await self._process.wait()
        await asyncio.gather(*self._hearing)
        return code

    async def end(self) -> None:
        """Ask it to stop; make it, if it does not."""
        with contextlib.suppress(ProcessLookupError):
            if self.exit_code is None:
                self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(END_SECONDS):
                await self.wait()
        except TimeoutError:
            self._process.kill()
            await self.wait()
