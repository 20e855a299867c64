from __future__ import annotations

import asyncio

import pytest

from tutti.bus.nats.durability import check_synced, check_version, learn_synced, learn_synced_again
from tutti.bus.nats.options import NatsOptions
from tutti.bus.nats.protocol import ServerInfo
from tutti.errors import NotDurable, Unreachable


@pytest.mark.parametrize("version", ["2.14.3", "2.14.10", "2.15.0", "3.0.0", "2.12.12", "2.12.99"])
def test_versions_that_are_trusted(version: str) -> None:
    check_version(ServerInfo(version=version))


@pytest.mark.parametrize(
    "version", ["2.14.2", "2.13.0", "2.13.9", "2.12.11", "2.11.50", "1.4.1", "2.15.0-RC.1", "2.15.1-dev", "", "main"]
)
def test_versions_that_are_not(version: str) -> None:
    with pytest.raises(NotDurable, match="below the floor") as refused:
        check_version(ServerInfo(version=version))
    assert "2.14.3" in refused.value.hint
    assert "durable=False" in refused.value.hint


def test_what_is_known_of_syncing_decides() -> None:
    check_synced(True)
    with pytest.raises(NotDurable, match="power cut"):
        check_synced(False)
    with pytest.raises(NotDurable, match="not known"):
        check_synced(None)


class Monitor:
    """Answers /varz as told."""

    def __init__(self, body: str, status: str = "200 OK") -> None:
        self._answer = f"HTTP/1.0 {status}\r\nContent-Type: application/json\r\n\r\n{body}".encode()
        self.asked: list[bytes] = []

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.append(await reader.readline())
        writer.write(self._answer)
        await writer.drain()
        writer.close()


async def learned(url: str, *, cluster: str = "") -> bool | None:
    options = NatsOptions(monitor_url=url, synced=True, request_timeout=2.0)
    return await learn_synced(options, ServerInfo(server_id="S", cluster=cluster))


async def test_the_monitoring_port_tells() -> None:
    always = Monitor('{"server_id":"S","jetstream":{"config":{"sync_interval":120000000000,"sync_always":true}}}')
    async with always as url:
        assert await learned(url) is True
        assert await learned(f"{url}/varz") is True
    assert always.asked == [b"GET /varz HTTP/1.0\r\n"] * 2
    for body in ('{"server_id":"S","jetstream":{"config":{"sync_interval":1}}}', '{"server_id":"S"}'):
        async with Monitor(body) as url:
            assert await learned(url) is False, "what is seen counts more than what was said"


async def test_every_server_of_a_cluster_must_sync() -> None:
    synced = '{"server_id":"X","jetstream":{"config":{"sync_always":true}}}'
    async with Monitor(synced) as one, Monitor('{"server_id":"Y","jetstream":{"config":{}}}') as other:
        assert await learned(f"{one}, {one}", cluster="c") is True
        assert await learned(f"{one},{other}", cluster="c") is False


async def test_the_wrong_or_a_broken_monitoring_url() -> None:
    async with Monitor('{"server_id":"T","jetstream":{"config":{"sync_always":true}}}') as url:
        with pytest.raises(NotDurable, match="belongs to the server"):
            await learned(url)
    for monitor in (Monitor("not JSON"), Monitor("", "404 Not Found")):
        async with monitor as url:
            with pytest.raises(Unreachable, match="cannot be read"):
                await learned(url)
    with pytest.raises(Unreachable, match="cannot be read"):
        await learned("http://127.0.0.1:1")


async def test_without_a_url_the_operators_word_counts() -> None:
    for said in (True, False, None):
        assert await learn_synced(NatsOptions(synced=said), ServerInfo()) is said


AWAY = "http://127.0.0.1:1"
SYNCS = '{"server_id":"S","jetstream":{"config":{"sync_always":true}}}'
SYNCS_NOT = '{"server_id":"T","jetstream":{"config":{"sync_always":false}}}'


async def learned_again(urls: str, *, known: bool | None, cluster: str = "c") -> bool | None:
    options = NatsOptions(monitor_url=urls, request_timeout=2.0)
    return await learn_synced_again(options, ServerInfo(server_id="S", cluster=cluster), known)


async def test_in_a_cluster_the_monitors_of_servers_that_are_away_say_nothing() -> None:
    async with Monitor(SYNCS) as good, Monitor(SYNCS_NOT) as bad:
        assert await learned_again(f"{AWAY},{good}", known=None) is True
        assert await learned_again(f"{AWAY},{good},{bad}", known=True) is False
    assert await learned_again(AWAY, known=True) is True


async def test_a_server_alone_is_asked_again() -> None:
    async with Monitor(SYNCS) as url:
        assert await learned_again(url, known=None, cluster="") is True
    with pytest.raises(Unreachable):
        await learned_again(AWAY, known=True, cluster="")
