"""`Embedded`: this process's use of the one server of a data folder."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tutti.bus.embedded.binary import FLOOR, at_or_above_floor
from tutti.bus.embedded.folder import (
    Folder,
    Membership,
    ServerRecord,
    UserRecord,
    client_url,
    default_folder,
    explained,
    monitor_url,
    require_platform,
)
from tutti.bus.embedded.launch import launch
from tutti.bus.embedded.locks import is_locked, try_lock
from tutti.bus.embedded.processes import Pulse, end_hung_supervisor
from tutti.bus.embedded.supervisor import HOST, version_in_greeting
from tutti.errors import EmbeddedError
from tutti.limits import EMBEDDED_WATCH_SECONDS

_POLL_SECONDS: Final = 0.01
_GREETING_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 2.0  # between attempts of the watch to get a supervisor again
_SERVING: Final = frozenset({"running", "sick"})  # one that cannot write can still be read
_log = logging.getLogger(__name__)


class Embedded:
    """One use of the embedded server: while it is held, the server runs, and comes back if it or its supervisor dies.

    `async with await Embedded.acquire(folder) as server: connect(server.url)`
    """

    def __init__(self, folder: Folder, membership: Membership, record: ServerRecord, *, sync: bool) -> None:
        self._folder = folder
        self._membership = membership
        self._record = record
        self._secret = folder.secret()
        self._sync = sync
        self._pulse = Pulse(folder)
        self._released = asyncio.Event()
        self._watch = asyncio.create_task(self._keep_watch(), name=f"tutti: watch of {folder.data}")

    @classmethod
    async def acquire(
        cls, folder: Path | None = None, *, sync: bool = True, keep: bool = False, timeout: float = 15.0
    ) -> Self:
        """Use the server of the data folder `folder`; start it if nobody has.

        `sync`: every acknowledged write is on the disk; a running server that does not sync is refused. Without it, one
        that syncs is shared all the same. `keep` marks this use as there to keep the server (`tutti up`), for
        `inspect`. After this you must `release`; if this process is killed, the kernel does."""
        require_platform()
        home = Folder(folder or default_folder())
        deadline = time.monotonic() + timeout
        membership = await _join(home, deadline, sync=sync, keep=keep)
        try:
            record = await _await_server(home, deadline, timeout, sync=sync)
            _require_shareable(home, record, sync=sync)
            return cls(home, membership, record, sync=sync)
        except BaseException:
            membership.close()
            raise

    @property
    def folder(self) -> Path:
        return self._folder.data

    @property
    def url(self) -> str:
        """With the credentials in it. It changes only if somebody else took the port while the server was down."""
        return client_url(self._record, self._secret)

    @property
    def monitor_url(self) -> str:
        """Where `/varz`, `/jsz` and the rest are found: `monitor_url + "/varz"`."""
        return monitor_url(self._record, self._secret)

    @property
    def pid(self) -> int:
        return self._record.pid

    @property
    def supervisor_pid(self) -> int:
        return self._record.supervisor_pid

    @property
    def version(self) -> str:
        return self._record.version

    @property
    def log(self) -> Path:
        return self._folder.log

    def current_url(self) -> str:
        """`url` as of now rather than of the last look: ask before each reconnect."""
        self._refresh()
        return self.url

    async def release(self) -> None:
        """Give the server back. If nobody else uses it, it ends within seconds. May be called again."""
        self._released.set()
        try:
            if self._membership.held:  # in a forked child the watch belongs to the parent's event loop
                await asyncio.wait({self._watch})
        finally:
            self._membership.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.release()

    # The watch: somebody must notice when a supervisor is killed

    async def _keep_watch(self) -> None:
        while not await self._released_within(EMBEDDED_WATCH_SECONDS):
            try:
                await self._look()
            except (EmbeddedError, OSError) as error:
                _log.error("the embedded server of %s is not kept: %s", self.folder, error)
                if not self._folder.path.exists() or await self._released_within(_RETRY_SECONDS):
                    return

    async def _look(self) -> None:
        election = try_lock(self._folder.supervisor_lock)
        if election is not None:
            _log.warning("the supervisor of %s is gone: starting another", self.folder)
            await asyncio.to_thread(launch, self._folder, election, sync=self._sync)
        elif end_hung_supervisor(self._folder, self._pulse):
            _log.warning("the supervisor of %s hung and was killed", self.folder)  # the next look finds its lock free
        self._refresh()

    def _refresh(self) -> None:
        record = self._folder.record()
        if record is None or not record.port:
            return
        if record.port != self._record.port:
            _log.warning("the embedded server of %s moved to port %d", self.folder, record.port)
        if record.state == "sick" and self._record.state != "sick":
            _log.error("the embedded server of %s stores nothing: %s", self.folder, record.reason)
        self._record = record

    async def _released_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._released.wait(), seconds)
        return self._released.is_set()


async def _join(folder: Folder, deadline: float, *, sync: bool, keep: bool) -> Membership:
    user = UserRecord(
        pid=os.getpid(), program=Path(sys.argv[0] if sys.argv else "").name or "python", sync=sync, keep=keep
    )
    pulse = Pulse(folder)
    while True:
        with explained(folder.data):
            folder.create()
            membership = folder.join(user)
        if membership is not None:
            return membership
        end_hung_supervisor(folder, pulse)
        if time.monotonic() > deadline:
            raise EmbeddedError(
                f"the server of {folder.data} is being ended, and that takes too long",
                hint=f"see {folder.supervisor_log}",
            )
        await asyncio.sleep(_POLL_SECONDS)


async def _await_server(folder: Folder, deadline: float, timeout: float, *, sync: bool) -> ServerRecord:
    """The record of a server that answers, started by us if the supervisor's lock was free."""
    ours = ""
    pulse = Pulse(folder)
    while True:
        with explained(folder.data):
            election = try_lock(folder.supervisor_lock)
            if election is not None:
                ours = await asyncio.to_thread(launch, folder, election, sync=sync)
            elif end_hung_supervisor(folder, pulse):
                deadline = time.monotonic() + timeout  # finding out has cost most of the time
            record = folder.record()
        if record is not None and record.state == "failed" and record.launch == ours:
            raise EmbeddedError(
                f"the server of {folder.data} does not start: {record.reason}", hint=f"see {folder.log}"
            )
        if record is not None and record.state in _SERVING and await _answers(record):
            return record
        if time.monotonic() > deadline:
            raise _too_late(folder, record, timeout)
        await asyncio.sleep(_POLL_SECONDS)


async def _answers(record: ServerRecord) -> bool:
    try:
        async with asyncio.timeout(_GREETING_SECONDS):
            reader, writer = await asyncio.open_connection(HOST, record.port)
            try:
                line = await reader.readline()
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except (OSError, ValueError, TimeoutError):
        return False
    return bool(version_in_greeting(line, record.name))


def _too_late(folder: Folder, record: ServerRecord | None, timeout: float) -> EmbeddedError:
    if record is not None and record.state in _SERVING and is_locked(folder.supervisor_lock):
        return EmbeddedError(
            f"the server of {folder.data} runs, but does not answer on {HOST}:{record.port}",
            hint="was it started in another container? A data folder can be shared only within one network",
        )
    said = f": {record.reason}" if record is not None and record.reason else ""
    state = record.state if record is not None else "not started"
    return EmbeddedError(
        f"the server of {folder.data} is still {state} after {timeout:g} s{said}",
        hint=f"give a longer timeout if it reads much data back, and see {folder.log}",
    )


def _require_shareable(folder: Folder, record: ServerRecord, *, sync: bool) -> None:
    """The server may have been started by others, with other wishes and another version."""
    pids = ", ".join(str(user.pid) for user in folder.live_users() if user.pid != os.getpid())
    if sync and not record.sync:
        raise EmbeddedError(
            f"the server of {folder.data} was started without sync, and others use it (pid {pids})",
            hint="end them first, or acquire it with sync=False if losing events in a power cut is acceptable",
        )
    if not at_or_above_floor(record.version):
        raise EmbeddedError(
            f"the server of {folder.data} is nats-server {record.version}, below the floor of {FLOOR}",
            hint=f"end its users (pid {pids}): the next start takes the installed version",
        )
