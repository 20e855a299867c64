"""Is a server to be trusted with what it acknowledges?

Two things are asked. Its version: below the floor, known faults lose acknowledged data or let strangers in. And whether
it syncs every write to the disk (`sync_interval: always`). A server says its version to everybody, but how it syncs
only on its monitoring port (`/varz`, `jetstream.config.sync_always`) and to the system account; an ordinary user cannot
see it. So the monitoring URL must be given, or the operator's word.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from typing import Final
from urllib.parse import urlsplit

import msgspec

from tutti.bus.nats.options import NatsOptions
from tutti.bus.nats.protocol import ServerInfo
from tutti.errors import NotDurable, Unreachable

_RELEASE: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)").fullmatch
_FLOOR: Final = (2, 14, 3)
_OLDER_FLOOR: Final = (2, 12, 12)
_OLDER_END: Final = (2, 13, 0)
_SET_IT: Final = "set `jetstream { sync_interval: always }` on every server"
_ACCEPT: Final = "or accept the risk with durable=False"


def check_version(info: ServerInfo) -> None:
    release = _RELEASE(info.version)
    version = tuple(map(int, release.groups())) if release else (0, 0, 0)
    if version >= _FLOOR or _OLDER_FLOOR <= version < _OLDER_END:
        return
    raise NotDurable(
        f"nats-server {info.version or '(no version)'} at {info.host}:{info.port} is below the floor for durable work",
        hint=f"use a release from 2.14.3 on, or 2.12.12 and later 2.12.x, {_ACCEPT}",
    )


class _JetStreamConfig(msgspec.Struct, frozen=True):
    sync_always: bool = False


class _JetStreamVarz(msgspec.Struct, frozen=True):
    config: _JetStreamConfig | None = None


class Varz(msgspec.Struct, frozen=True):
    server_id: str = ""
    server_name: str = ""
    jetstream: _JetStreamVarz = _JetStreamVarz()

    @property
    def synced(self) -> bool:
        return self.jetstream.config is not None and self.jetstream.config.sync_always


async def learn_synced(options: NatsOptions, info: ServerInfo) -> bool | None:
    """What is known of how the servers sync; None: nothing."""
    urls = [url.strip() for url in options.monitor_url.split(",") if url.strip()]
    if not urls:
        return options.synced
    seen = [await read_varz(url, timeout=options.request_timeout) for url in urls]
    if len(urls) == 1 and not info.cluster and seen[0].server_id != info.server_id:
        raise NotDurable(
            f"{urls[0]} belongs to the server {seen[0].server_name}, but we are connected to {info.server_name}",
            hint="give the monitoring URL of the server that is connected to",
        )
    return all(varz.synced for varz in seen)


async def learn_synced_again(options: NatsOptions, info: ServerInfo, known: bool | None) -> bool | None:  # noqa: FBT001  a fact, not a switch
    """What is known after a reconnection to another server, or to one that was started anew. In a cluster the
    monitoring URLs speak for all its servers, and those of servers that are away say nothing."""
    urls = [url.strip() for url in options.monitor_url.split(",") if url.strip()]
    if not urls or not info.cluster:
        return await learn_synced(options, info)
    asked = (read_varz(url, timeout=options.request_timeout) for url in urls)
    answers = await asyncio.gather(*asked, return_exceptions=True)
    seen = [answer for answer in answers if isinstance(answer, Varz)]
    return all(varz.synced for varz in seen) if seen else known


def check_synced(synced: bool | None) -> None:  # noqa: FBT001  a fact, not a switch
    match synced:
        case True:
            return
        case False:
            raise NotDurable(
                "the server acknowledges writes before they are on its disk: a power cut loses two minutes of them",
                hint=f"{_SET_IT}, {_ACCEPT}",
            )
        case None:
            raise NotDurable(
                "whether the server syncs its writes is not known: it tells only on its monitoring port",
                hint=f"{_SET_IT}, and give monitor_url='http://host:8222' so that it can be seen, or say synced=True "
                f"if you know it, {_ACCEPT}",
            )


async def read_varz(url: str, *, timeout: float) -> Varz:
    parts = urlsplit(url)
    tls = parts.scheme == "https"
    path = parts.path.rstrip("/")
    target = path if path.endswith("/varz") else f"{path}/varz"
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(
                parts.hostname, parts.port or (443 if tls else 8222), ssl=ssl.create_default_context() if tls else None
            )
            try:
                writer.write(f"GET {target} HTTP/1.0\r\nHost: {parts.hostname}\r\n\r\n".encode())
                answer = await reader.read(-1)
            finally:
                writer.close()
        return msgspec.json.decode(answer.partition(b"\r\n\r\n")[2], type=Varz)
    except (OSError, ValueError) as error:  # TimeoutError and msgspec's errors are such
        raise Unreachable(f"the monitoring URL {url} cannot be read: {error}", hint="is `http_port` set?") from None
