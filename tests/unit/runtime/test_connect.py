"""From what a user says to an open bus."""

from __future__ import annotations

from pathlib import Path

import pytest

import tutti
from tutti.bus.memory import MemoryTransport


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TUTTI_URL", "TUTTI_DATA", "TUTTI_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)


class Step(tutti.Event):
    number: int


async def test_a_bus_in_memory_needs_nothing() -> None:
    async with tutti.connect("memory://", name="desk") as bus:
        await bus.advertise(Step)
        assert (await bus.publish(Step(1))).sequence == 1
        assert isinstance(bus.context.transport, MemoryTransport)
        assert bus.name == "desk"


async def test_each_bus_in_memory_is_its_own() -> None:
    async with tutti.connect("memory://") as one, tutti.connect("memory://") as other:
        await one.advertise(Step)
        assert await other.types() == []


async def test_the_environment_says_where_and_in_which_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUTTI_URL", "memory://")
    monkeypatch.setenv("TUTTI_NAMESPACE", "shop")
    async with tutti.connect() as bus:
        assert isinstance(bus.context.transport, MemoryTransport)
        assert bus.context.layout.namespace == "shop"
    async with tutti.connect(namespace="other") as bus:
        assert bus.context.layout.namespace == "other"


def test_a_url_and_a_data_folder_contradict_each_other(tmp_path: Path) -> None:
    with pytest.raises(tutti.DeclarationError, match="both a server"):
        tutti.connect("nats://127.0.0.1:1", data=tmp_path)


@pytest.mark.parametrize("namespace", ["a.b", "*", "ä", "-x"])
def test_namespaces_that_no_subject_can_begin_with(namespace: str) -> None:
    with pytest.raises(tutti.DeclarationError, match="cannot name a namespace"):
        tutti.connect("memory://", namespace=namespace)


async def test_a_publisher_s_name_is_checked_before_anything_is_sent() -> None:
    bus = tutti.connect("memory://", name="a.b")
    with pytest.raises(tutti.DeclarationError, match="cannot name a publisher"):
        await bus.open()


@pytest.mark.parametrize("url", ["http://127.0.0.1:4222", "nats://", "nats://127.0.0.1:port"])
async def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(tutti.DeclarationError, match="not the address of a NATS server"):
        await tutti.connect(url).open()


async def test_nobody_there_is_said_with_the_address() -> None:
    bus = tutti.connect(options=tutti.NatsOptions(urls=("nats://127.0.0.1:1",), connect_timeout=0.2))
    with pytest.raises(tutti.Unreachable, match=r"127\.0\.0\.1:1"):
        await bus.open()


async def test_opening_twice_is_refused() -> None:
    async with tutti.connect("memory://") as bus:
        with pytest.raises(tutti.DeclarationError, match="open already"):
            await bus.open()
