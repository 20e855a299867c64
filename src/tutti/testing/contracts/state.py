"""The state: one value per key, changed only by who knew the one before."""

# ruff: noqa: S101  -- this module is tests, shipped

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress

import pytest

from tutti.bus.port import Entry, Transport
from tutti.errors import Conflict, Refused
from tutti.testing.contracts.servers import Bus, Contract
from tutti.testing.contracts.words import settled_or_error, soon


class StateContract(Contract):
    """state_get, state_list, state_put."""

    async def test_a_record_is_what_was_put(self, bus: Bus) -> None:
        one, other = await bus.connect(), await bus.connect()
        await bus.state(one)
        assert await one.state_get("lease.desk.3") is None
        value = bytes(range(256))
        revision = await one.state_put("lease.desk.3", value, expected=0)
        assert revision > 0
        for transport in (one, other):
            entry = await transport.state_get("lease.desk.3")
            assert entry is not None
            assert (entry.key, entry.value, entry.revision) == ("lease.desk.3", value, revision)
            assert abs(entry.stored_at - time.time()) < 60
        assert await one.state_get("lease.desk") is None
        assert await one.state_get("lease.desk.3.x") is None

    async def test_a_change_must_name_the_revision(self, bus: Bus) -> None:
        transport = await bus.connect()
        await bus.state(transport)
        first = await transport.state_put("a", b"1", expected=0)
        for wrong in (0, first + 1, first + 100):
            with pytest.raises(Conflict):
                await transport.state_put("a", b"2", expected=wrong)
        second = await transport.state_put("a", b"2", expected=first)
        assert second > first
        with pytest.raises(Conflict):
            await transport.state_put("a", b"3", expected=first)
        entry = await transport.state_get("a")
        assert entry is not None
        assert (entry.value, entry.revision) == (b"2", second)

    async def test_a_record_that_is_not_there_has_no_revision(self, bus: Bus) -> None:
        transport = await bus.connect()
        await bus.state(transport)
        await transport.state_put("other", b"1", expected=0)
        with pytest.raises(Conflict):
            await transport.state_put("a", b"1", expected=1)
        assert await transport.state_get("a") is None

    async def test_of_racers_one_wins(self, bus: Bus) -> None:
        transports = [await bus.connect() for _ in range(2)]
        await bus.state(transports[0])
        revision = 0
        for turn in range(5):
            outcomes = await soon(
                asyncio.gather(
                    *(
                        settled_or_error(transports[n % 2].state_put("a", b"%d-%d" % (turn, n), expected=revision))
                        for n in range(8)
                    )
                )
            )
            winners = [(n, outcome) for n, outcome in enumerate(outcomes) if isinstance(outcome, int)]
            assert len(winners) == 1
            assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 7
            [(winner, revision)] = winners
            entry = await transports[0].state_get("a")
            assert entry is not None
            assert (entry.value, entry.revision) == (b"%d-%d" % (turn, winner), revision)

    async def test_a_counter_that_two_increment_loses_nothing(self, bus: Bus) -> None:
        transports = [await bus.connect() for _ in range(2)]
        await bus.state(transports[0])

        async def increment(transport: Transport) -> None:
            done = 0
            while done < 20:
                entry = await transport.state_get("n")
                value, revision = (int(entry.value), entry.revision) if entry else (0, 0)
                with suppress(Conflict):
                    await transport.state_put("n", b"%d" % (value + 1), expected=revision)
                    done += 1

        await soon(asyncio.gather(*(increment(transport) for transport in transports)))
        entry = await transports[0].state_get("n")
        assert entry is not None
        assert entry.value == b"40"

    async def test_an_empty_value_deletes(self, bus: Bus) -> None:
        one, other = await bus.connect(), await bus.connect()
        await bus.state(one)
        first = await one.state_put("a.b", b"1", expected=0)
        with pytest.raises(Conflict):
            await one.state_put("a.b", b"", expected=first + 1)
        deleted = await one.state_put("a.b", b"", expected=first)
        assert deleted == 0
        for transport in (one, other):
            assert await transport.state_get("a.b") is None
            assert list(await transport.state_list("a")) == []
        with pytest.raises(Conflict):
            await other.state_put("a.b", b"2", expected=first)
        second = await other.state_put("a.b", b"2", expected=0)
        assert second > first
        with pytest.raises(Conflict):
            await other.state_put("a.b", b"3", expected=0)

    async def test_of_those_who_recreate_a_deleted_record_one_wins(self, bus: Bus) -> None:
        transports = [await bus.connect() for _ in range(2)]
        await bus.state(transports[0])
        revision = await transports[0].state_put("a", b"1", expected=0)
        await transports[0].state_put("a", b"", expected=revision)
        outcomes = await soon(
            asyncio.gather(*(settled_or_error(t.state_put("a", b"2", expected=0)) for t in transports * 5))
        )
        assert sum(isinstance(outcome, int) for outcome in outcomes) == 1
        assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 9

    async def test_a_list_is_by_tokens_and_in_order(self, bus: Bus) -> None:
        transport = await bus.connect()
        await bus.state(transport)
        keys = ["lease.b", "lease.a.x", "leases.a", "lease.a", "lease", "type.=2D.1", "lease.a.y"]
        for key in keys:
            await transport.state_put(key, key.encode(), expected=0)

        async def listed(prefix: str) -> list[str]:
            entries: Sequence[Entry] = await transport.state_list(prefix)
            assert all(entry.value == entry.key.encode() and entry.revision > 0 for entry in entries)
            return [entry.key for entry in entries]

        assert await listed("") == sorted(keys)
        assert await listed("lease") == ["lease", "lease.a", "lease.a.x", "lease.a.y", "lease.b"]
        assert await listed("lease.a") == ["lease.a", "lease.a.x", "lease.a.y"]
        assert await listed("type") == ["type.=2D.1"]
        assert await listed("leas") == []

    async def test_a_list_is_complete_and_current(self, bus: Bus) -> None:
        one, other = await bus.connect(), await bus.connect()
        await bus.state(one)
        keys = [f"type.t{n:04}" for n in range(600)]
        revisions = await soon(asyncio.gather(*(one.state_put(key, b"1", expected=0) for key in keys)))
        await one.state_put(keys[0], b"", expected=revisions[0])
        await one.state_put(keys[1], b"2", expected=revisions[1])
        entries = await soon(other.state_list("type"))
        assert [entry.key for entry in entries] == keys[1:]
        assert entries[0].value == b"2"

    @pytest.mark.parametrize("key", ["", "a.*", "a.>", "a b", "a..b", ".a", "a."])
    async def test_what_is_not_a_key_is_refused(self, bus: Bus, key: str) -> None:
        transport = await bus.connect()
        await bus.state(transport)
        with pytest.raises(Refused):
            await transport.state_put(key, b"1", expected=0)
