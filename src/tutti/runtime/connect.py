"""From what a user says to an open bus: embedded, by URL, or in memory."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tutti.bus.embedded import Embedded, default_folder
from tutti.bus.memory import MemoryCluster, MemoryTransport
from tutti.bus.nats import NatsOptions, NatsTransport
from tutti.bus.port import Transport
from tutti.errors import DeclarationError
from tutti.limits import PUBLISH_TIMEOUT_SECONDS
from tutti.model.subjects import Layout
from tutti.resources import Resource
from tutti.runtime.bus import Bus, ManagerPlace, OpenTransport
from tutti.runtime.catalogue import Stream
from tutti.runtime.transactions.opening import CoordinatorOpener
from tutti.runtime.transactions.own_log import log_opener

MEMORY_URL = "memory://"


def connect(
    url: str | Sequence[str] | None = None,
    *,
    data: str | Path | None = None,
    name: str = "",
    namespace: str | None = None,
    streams: Mapping[str, Stream] | None = None,
    timeout: float = PUBLISH_TIMEOUT_SECONDS,
    options: NatsOptions | None = None,
    journal: str | Path | None = None,
    resources: Sequence[Resource[Any]] = (),
    manager: ManagerPlace = "here",
    trusted: str = "",
) -> Bus:
    """A bus, to be used as `async with tutti.connect() as bus:`.

    url        nats://… or tls://… of one server or several; `memory://` for a bus within this process. Without one,
               $TUTTI_URL; without that, a server of our own in the data folder, shared by all who name the same folder
    data       the data folder of the embedded server ($TUTTI_DATA, or `.tutti` here)
    name       the publisher's name: its events stay in order over restarts. Without one, each run is a publisher
    namespace  keeps several applications on one server apart ($TUTTI_NAMESPACE, or "tutti")
    streams    settings by stream: age, size, replicas
    timeout    seconds that publishing waits for a server that is away
    options    credentials, NKEYs, TLS and whatever else a cluster asks for
    journal    where transactions are decided: a folder for SQLite, or postgresql://… for several hosts ($TUTTI_JOURNAL,
               or the data folder). The key that signs for it lies beside it; for PostgreSQL, in the data folder
    resources  what this process can finish for publishers that died
    manager    of this process's transactions: "here", with the journal; or "service": some `tutti up` on this bus. That
               notices when this process dies, and no journal is needed here
    trusted    the journal's public key, which `tutti up` shows: nobody else is believed to decide ($TUTTI_TRUSTED). In
               the journal's own folder it is known; without it, the first key that stands on the bus is believed
    """
    space = namespace or os.environ.get("TUTTI_NAMESPACE") or "tutti"
    opener = _opener(url, data, options, name)
    alone = opener is _open_memory
    folder = Path(data) if data is not None else default_folder()
    named = journal or os.environ.get("TUTTI_JOURNAL")
    chosen = named or (None if alone else folder)
    managers = CoordinatorOpener(chosen, folder, resources)
    ours = named is not None or not _urls(url, options)  # a folder that happens to be here says nothing about servers
    return Bus(
        opener,
        namespace=space,
        name=name,
        streams=streams,
        timeout=timeout,
        open_coordinator=managers,
        open_log=log_opener(chosen),
        manager=manager,
        trusted=trusted or os.environ.get("TUTTI_TRUSTED") or (managers.public_key() if ours else ""),
        alone=alone,
    )


def _opener(
    url: str | Sequence[str] | None, data: str | Path | None, options: NatsOptions | None, name: str
) -> OpenTransport:
    urls = _urls(url, options)
    if urls and data is not None:
        raise DeclarationError(
            f"both a server ({urls[0]}) and a data folder ({data}) are named",
            hint="name a URL for servers that run already, or a data folder for the embedded one",
        )
    if urls == (MEMORY_URL,):
        return _open_memory
    if urls:
        given = options or NatsOptions()
        chosen = msgspec.structs.replace(given, urls=urls, name=name or given.name)

        async def open_cluster(layout: Layout) -> Transport:
            transport = NatsTransport(chosen, layout)
            await transport.start()
            return transport

        return open_cluster

    async def open_embedded(layout: Layout) -> Transport:
        return await EmbeddedTransport.open(Path(data) if data is not None else default_folder(), layout, name)

    return open_embedded


def _urls(url: str | Sequence[str] | None, options: NatsOptions | None) -> tuple[str, ...]:
    if isinstance(url, str):
        return tuple(part.strip() for part in url.split(",") if part.strip())
    if url is not None:
        return tuple(url)
    if options is not None:
        return options.urls
    return _urls(os.environ.get("TUTTI_URL", ""), None)


async def _open_memory(layout: Layout) -> Transport:
    transport = MemoryTransport(layout, cluster=MemoryCluster())
    await transport.start()
    return transport


class EmbeddedTransport(NatsTransport):
    """The transport to the embedded server, which it holds while it is open."""

    _embedded: Embedded

    @classmethod
    async def open(cls, folder: Path, layout: Layout, name: str) -> EmbeddedTransport:
        embedded = await Embedded.acquire(folder)
        try:
            options = NatsOptions(urls=(embedded.url,), monitor_url=embedded.monitor_url, name=name or "tutti")
            transport = cls(
                options, layout, locate=lambda: (embedded.current_url(),), monitor=lambda: embedded.monitor_url
            )
            transport._embedded = embedded
            await transport.start()
        except BaseException:
            await embedded.release()
            raise
        return transport

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            await self._embedded.release()
