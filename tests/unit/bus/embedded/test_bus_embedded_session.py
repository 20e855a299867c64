from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import msgspec
import pytest

from tutti.bus.embedded import Embedded
from tutti.bus.embedded.folder import FORMAT, Folder, ServerRecord
from tutti.bus.embedded.locks import try_lock
from tutti.bus.embedded.supervisor import HOST, free_port
from tutti.errors import EmbeddedError

RECORD = ServerRecord(
    format=FORMAT,
    tutti="0",
    launch="l",
    name="n",
    state="running",
    binary="b",
    sync=True,
    grace=1.0,
    pid=3,
    supervisor_pid=2,
    version="2.15.1",
)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path)
    folder.create()
    folder.create_secret()
    return folder


async def greeter(record: ServerRecord) -> tuple[asyncio.Server, ServerRecord]:
    """Something that greets as the server of that record would."""

    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        info = {"server_name": record.name, "jetstream": True, "version": record.version}
        writer.write(b"INFO " + msgspec.json.encode(info) + b"\r\n")
        writer.close()
        await writer.wait_closed()

    port = free_port()
    return await asyncio.start_server(greet, HOST, port), msgspec.structs.replace(record, port=port)


async def test_a_running_server_is_shared_as_it_is(folder: Folder) -> None:
    server, record = await greeter(RECORD)
    folder.write_record(record)
    async with server:
        with try_lock(folder.supervisor_lock) or pytest.fail("free"):
            async with await Embedded.acquire(folder.data, keep=True) as embedded:
                assert (embedded.pid, embedded.supervisor_pid, embedded.version) == (3, 2, "2.15.1")
                assert embedded.url.endswith(f"@127.0.0.1:{record.port}")
                assert embedded.folder == folder.data
                assert embedded.log == folder.log
                assert [(user.pid, user.keep) for user in folder.live_users()] == [(os.getpid(), True)]
                folder.write_record(msgspec.structs.replace(record, port=1234))
                assert embedded.current_url().endswith(":1234")
                assert embedded.url.endswith(":1234")
    assert folder.live_users() == ()


@pytest.mark.parametrize(
    ("change", "words"),
    [({"sync": False}, "started without sync"), ({"version": "2.14.0"}, r"2\.14\.0, below the floor")],
)
async def test_a_running_server_that_does_not_do_is_refused(
    folder: Folder, change: dict[str, object], words: str
) -> None:
    server, record = await greeter(msgspec.structs.replace(RECORD, **change))
    folder.write_record(record)
    async with server:
        with try_lock(folder.supervisor_lock) or pytest.fail("free"), pytest.raises(EmbeddedError, match=words):
            await Embedded.acquire(folder.data)
    assert folder.live_users() == ()


async def test_a_server_of_another_network_is_told_apart_from_a_slow_one(folder: Folder) -> None:
    with try_lock(folder.supervisor_lock) or pytest.fail("free"):
        with pytest.raises(EmbeddedError, match="still not started after 0 s"):
            await Embedded.acquire(folder.data, timeout=0)
        folder.write_record(msgspec.structs.replace(RECORD, state="starting", reason="it died"))
        with pytest.raises(EmbeddedError, match="still starting after 0 s: it died"):
            await Embedded.acquire(folder.data, timeout=0)
        folder.write_record(msgspec.structs.replace(RECORD, port=free_port()))
        with pytest.raises(EmbeddedError, match="does not answer") as caught:
            await Embedded.acquire(folder.data, timeout=0)
        assert "container" in caught.value.hint


async def test_who_comes_while_a_server_ends_waits_no_longer_than_asked(folder: Folder) -> None:
    began = time.monotonic()
    with try_lock(folder.users_lock) or pytest.fail("free"), pytest.raises(EmbeddedError, match="is being ended"):
        await Embedded.acquire(folder.data, timeout=0.05)
    assert time.monotonic() - began < 5
