"""The embedded server among real processes: shared, killed in every way, and always gone in the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import nats
import pytest

from tutti.bus.embedded import Embedded, launch, processes, supervisor
from tutti.bus.embedded.folder import Folder
from tutti.bus.embedded.inspection import ServerState, inspect
from tutti.bus.embedded.locks import is_locked, try_lock

pytestmark = pytest.mark.skipif(not supervisor.HAS_PROC, reason="processes are counted in /proc")

PATIENCE_SECONDS: Final = 20.0  # for a busy machine; nothing here takes more than a few
GONE_SECONDS: Final = 4.0  # the promise is about three; the machine may be busy

# A process that uses the server until its standard input ends. It says what it got, and again whenever asked.
_USER: Final = """
import asyncio, json, multiprocessing, os, subprocess, sys, time
from pathlib import Path
from tutti.bus.embedded import Embedded, launch

launch.EMBEDDED_GRACE_SECONDS = float(sys.argv[2])

def idle():
    for fd in range(3):
        os.dup2(os.open(os.devnull, os.O_RDWR), fd)
    time.sleep(60)

def start_children():
    nothing = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    executed = subprocess.Popen(["sleep", "60"], close_fds=False, **nothing)
    forked = multiprocessing.get_context("fork").Process(target=idle)
    forked.start()
    return [executed.pid, forked.pid]

async def main():
    async with await Embedded.acquire(Path(sys.argv[1])) as server:
        children = start_children() if "--with-children" in sys.argv else []
        while True:
            print(json.dumps({"url": server.current_url(), "pid": server.pid, "children": children}), flush=True)
            if not await asyncio.to_thread(sys.stdin.readline):
                return

asyncio.run(main())
"""


@dataclass
class User:
    process: asyncio.subprocess.Process
    url: str
    server_pid: int
    children: list[int]

    async def said(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), PATIENCE_SECONDS)
        assert line, "the user ended without a word"
        return dict(json.loads(line))

    async def leave(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert await asyncio.wait_for(self.process.wait(), PATIENCE_SECONDS) == 0

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()


StartUser = Callable[..., Awaitable[User]]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "EMBEDDED_GRACE_SECONDS", 0.2)


@pytest.fixture
async def start_user(data: Path) -> AsyncIterator[StartUser]:
    users: list[User] = []

    async def start(*options: str, grace: float = 0.2) -> User:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _USER, str(data), str(grace), *options),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        user = User(process, "", 0, [])
        users.append(user)
        said = await user.said()
        user.url, user.server_pid, user.children = said["url"], said["pid"], said["children"]
        return user

    yield start
    for user in users:
        if user.process.returncode is None:
            await user.kill()
        for child in user.children:
            os.kill(child, signal.SIGKILL)
    await gone(data)


async def eventually(check: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        await asyncio.sleep(0.02)


def servers_of(data: Path) -> list[int]:
    pids = (int(entry.name) for entry in Path("/proc").glob("[0-9]*"))
    return [pid for pid in pids if processes.is_server_of(pid, "", Folder(data))]


def supervisors_of(data: Path) -> list[int]:
    folder = Folder(data)
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if supervisor.__file__.encode() in words and str(folder.path).encode() in words:
            found.append(int(entry.name))
    return found


def looked_at(data: Path) -> ServerState:
    state = inspect(data)
    assert state is not None
    return state


async def gone(data: Path, seconds: float = PATIENCE_SECONDS) -> None:
    await eventually(lambda: not servers_of(data) and not supervisors_of(data), seconds)


async def answer(url: str) -> bytes:
    """What the server says to a PING with the credentials in `url`: PONG, or an error. Nothing if it is not there."""
    parts = urlsplit(url)
    words = json.dumps({"user": parts.username or "", "pass": parts.password or "", "verbose": False})
    try:
        async with asyncio.timeout(5):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            try:
                await reader.readline()
                writer.write(f"CONNECT {words}\r\nPING\r\n".encode())
                return await reader.readline()
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except (OSError, TimeoutError):
        return b""


async def works(url: str) -> bool:
    return (await answer(url)).startswith(b"PONG")


async def serves(url: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not await works(url()):
        assert time.monotonic() < deadline, "no server came back"
        await asyncio.sleep(0.02)


# Sharing


async def test_processes_share_one_server_and_the_last_one_ends_it(data: Path, start_user: StartUser) -> None:
    first, second = await start_user(), await start_user()

    assert (first.url, first.server_pid) == (second.url, second.server_pid)
    assert servers_of(data) == [first.server_pid]
    state = looked_at(data)
    assert state.running
    assert state.state == "running"
    assert {user.pid for user in state.users} == {first.process.pid, second.process.pid}

    await first.leave()
    assert await works(second.url)
    assert [user.pid for user in looked_at(data).users] == [second.process.pid]

    await second.leave()
    await gone(data, GONE_SECONDS)
    state = looked_at(data)
    assert (state.state, state.reason, state.running, state.users) == ("stopped", "its last user left", False, ())


async def test_five_processes_that_start_at_once_get_one_server(data: Path, start_user: StartUser) -> None:
    users = await asyncio.gather(*(start_user() for _ in range(5)))
    assert len({(user.url, user.server_pid) for user in users}) == 1
    assert len(servers_of(data)) == 1
    assert len(supervisors_of(data)) == 1


async def test_commands_in_a_row_find_the_same_server(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "EMBEDDED_GRACE_SECONDS", 10.0)
    async with await Embedded.acquire(data) as first:
        pid = first.pid
    async with await Embedded.acquire(data) as second:
        assert second.pid == pid
    os.kill(second.supervisor_pid, signal.SIGTERM)  # nobody waits for the end of the grace
    await gone(data)


async def test_newcomers_wait_while_a_server_ends(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "EMBEDDED_GRACE_SECONDS", 0.0)
    pids = set()
    for _ in range(6):
        async with await Embedded.acquire(data) as server:
            pids.add(server.pid)
            assert await works(server.url)
            assert servers_of(data) == [server.pid]
        await eventually(lambda: looked_at(data).state == "stopped" or not supervisors_of(data))
    assert len(pids) == 6
    await gone(data)


async def test_an_acquire_that_is_cancelled_leaves_nothing(data: Path) -> None:
    task = asyncio.create_task(Embedded.acquire(data))
    await eventually(lambda: Folder(data).record() is not None)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: not is_locked(Folder(data).supervisor_lock))
    await gone(data)


# Killing


async def test_killed_users_end_the_server(data: Path, start_user: StartUser) -> None:
    users = [await start_user(grace=1.0), await start_user(grace=1.0)]
    for user in users:
        await user.kill()
    await gone(data, GONE_SECONDS)
    assert looked_at(data).reason == "its last user left"
    assert list(Folder(data).users.iterdir()) == []


async def test_children_of_a_user_do_not_keep_the_server(data: Path, start_user: StartUser) -> None:
    user = await start_user("--with-children")
    await user.kill()
    await gone(data, GONE_SECONDS)
    assert all(supervisor.start_mark(child) for child in user.children), "the children should have outlived the user"


async def test_a_killed_server_is_back_on_its_port_with_its_data(data: Path) -> None:
    async with await Embedded.acquire(data) as server:
        url, pid = server.url, server.pid
        client = await nats.connect(url)
        stream = client.jetstream()
        await stream.add_stream(name="kept", subjects=["kept.>"])
        await stream.publish("kept.one", b"still here")
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: looked_at(data).state == "running" and looked_at(data).pid != pid)
        await serves(lambda: url)
        await eventually(lambda: client.is_connected)
        assert (await stream.get_msg("kept", seq=1)).data == b"still here"
        await client.close()
        assert server.current_url() == url
        assert looked_at(data).restarts == 1
        assert servers_of(data) == [server.pid]
    await gone(data)


async def test_a_killed_supervisor_is_replaced_by_its_users(data: Path, start_user: StartUser) -> None:
    users = [await start_user(), await start_user(), await start_user()]
    before = looked_at(data)
    os.kill(before.supervisor_pid, signal.SIGKILL)
    await eventually(lambda: looked_at(data).state == "running" and looked_at(data).pid not in {0, before.pid})
    await serves(lambda: users[0].url)
    assert servers_of(data) == [looked_at(data).pid]
    assert supervisors_of(data) == [looked_at(data).supervisor_pid]
    for user in users:
        await user.leave()
    await gone(data, GONE_SECONDS)


async def test_both_killed_come_back(data: Path, start_user: StartUser) -> None:
    user = await start_user()
    before = looked_at(data)
    os.kill(before.supervisor_pid, signal.SIGKILL)
    os.kill(before.pid, signal.SIGKILL)
    await eventually(lambda: looked_at(data).state == "running" and looked_at(data).pid not in {0, before.pid})
    await serves(lambda: user.url)
    assert len(servers_of(data)) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere an orphan lives until the next user comes")
async def test_a_supervisor_killed_with_its_last_user_takes_the_server_with_it(
    data: Path, start_user: StartUser
) -> None:
    user = await start_user()
    os.kill(user.process.pid, signal.SIGSTOP)  # so that it cannot start another in between
    os.kill(looked_at(data).supervisor_pid, signal.SIGKILL)
    await user.kill()
    await gone(data, GONE_SECONDS)


async def test_everything_killed_at_once_leaves_a_folder_that_starts_again(data: Path, start_user: StartUser) -> None:
    user = await start_user()
    before = looked_at(data)
    for pid in (user.process.pid, before.supervisor_pid, before.pid):
        os.kill(pid, signal.SIGKILL)
    await user.process.wait()
    await eventually(lambda: looked_at(data).state == "stopped")
    assert "killed" in looked_at(data).reason
    again = await start_user()
    assert again.url == user.url


async def test_an_orphan_that_does_not_end_is_killed_by_the_next_supervisor(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "GRACEFUL_SECONDS", 0.3)
    async with await Embedded.acquire(data) as server:
        orphan, port = server.pid, server.url
        os.kill(orphan, signal.SIGSTOP)  # it cannot hear the kernel's, nor our, SIGTERM
        os.kill(server.supervisor_pid, signal.SIGKILL)
        await eventually(lambda: looked_at(data).state == "running" and looked_at(data).pid not in {0, orphan})
        await serves(server.current_url)
        assert servers_of(data) == [server.pid]
        assert server.url == port
    await gone(data)


async def test_a_supervisor_that_is_told_to_end_is_replaced_while_there_are_users(data: Path) -> None:
    async with await Embedded.acquire(data) as server:
        before = server.supervisor_pid
        os.kill(before, signal.SIGTERM)
        await eventually(lambda: looked_at(data).state == "running" and looked_at(data).supervisor_pid != before)
        await serves(server.current_url)
    await gone(data)


async def test_a_removed_folder_ends_its_server(data: Path) -> None:
    server = await Embedded.acquire(data)
    shutil.rmtree(data)
    await gone(data, GONE_SECONDS)
    await server.release()


async def test_no_unrelated_process_is_ended_for_a_pid_in_a_file(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder names the pid of somebody else, and what looks like an orphan cannot be proved to be one."""
    monkeypatch.setattr(processes, "GRACEFUL_SECONDS", 0.1)
    monkeypatch.setattr(processes, "KILLED_SECONDS", 0.1)
    async with await Embedded.acquire(data):
        pass
    await gone(data)
    stranger = await asyncio.create_subprocess_exec("sleep", "60")
    path = Folder(data).path / "server.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "pid": stranger.pid, "state": "running"}))
    Folder(data).pid_file.write_text(str(stranger.pid))
    try:
        async with await Embedded.acquire(data) as server:
            assert server.pid != stranger.pid
            assert stranger.returncode is None
        await gone(data)
        Folder(data).pid_file.write_text(str(stranger.pid))
        lock = try_lock(Folder(data).server_lock)
        assert lock is not None
        with lock, pytest.raises(Exception, match="could not be ended"):
            await Embedded.acquire(data)
        assert supervisor.start_mark(stranger.pid)
    finally:
        stranger.kill()
        await stranger.wait()


# Ports


def taken(port: int) -> socket.socket:
    return socket.create_server((supervisor.HOST, port))


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


async def test_the_port_is_kept_between_starts_and_given_up_if_taken(data: Path) -> None:
    async with await Embedded.acquire(data) as server:
        port = port_of(server.url)
        assert port in supervisor.PORTS
    await gone(data)
    async with await Embedded.acquire(data) as server:
        assert port_of(server.url) == port
    await gone(data)
    with taken(port):
        async with await Embedded.acquire(data) as server:
            assert port_of(server.url) != port
            assert await works(server.url)
    await gone(data)


async def test_users_learn_of_a_port_that_was_lost_while_the_server_was_down(data: Path) -> None:
    async with await Embedded.acquire(data) as server:
        port, pid = port_of(server.url), server.pid
        os.kill(server.supervisor_pid, signal.SIGSTOP)
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: supervisor.is_free(port))
        with taken(port):
            os.kill(server.supervisor_pid, signal.SIGCONT)
            await eventually(lambda: port_of(server.current_url()) != port)
            await serves(server.current_url)
            await eventually(lambda: port_of(server.url) == port_of(server.current_url()))
    await gone(data)
