"""From the outbox to the log: every status, once, in its order, through everything that may go wrong between."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

import tutti
from tests.unit.runtime.transactions.staged import Office, Staged, journal_in
from tutti.bus.memory import MemoryTransport
from tutti.errors import BusError
from tutti.limits import STATUS_RELAY_SECONDS
from tutti.model.status import TransactionStatus
from tutti.runtime.transactions.statuses import StatusRelay, read_status
from tutti.testing.kit import BusKit


class Invited(tutti.Event):
    number: int


@pytest.fixture
async def begun(tutti_bus: BusKit, office: Office) -> Staged:
    await tutti_bus.advertise(Invited)
    staged = await office.begin()
    await staged.publish(Invited(1), Invited(2))
    return staged


async def written(office: Office, status: TransactionStatus) -> int:
    """Put into the log by somebody else."""
    append = office.transport.append(office.layout.status(status.tx), {}, msgspec.json.encode(status), timeout=1.0)
    return (await append).sequence


async def sent_in_time(bus: BusKit, office: Office) -> None:
    """Let the relay work and time pass until the outbox is empty."""
    async with asyncio.timeout(20):
        while await office.journal.unsent():
            await asyncio.sleep(0.001)
            bus.clock.advance(0.05)


async def test_a_status_goes_to_the_log_once(office: Office, begun: Staged) -> None:
    await begun.decide()
    assert await office.relay.send() == 1
    assert await office.relay.send() == 0
    assert await office.statuses() == [f"{begun.tx} committed 1"]
    dossier = await office.journal.show(begun.tx)
    assert dossier is not None
    assert [one.sequence for one in dossier.statuses] == [1]
    record = await office.transport.last(office.layout.status_stream, office.layout.status(begun.tx))
    assert record is not None
    assert read_status(record) == await begun.status("commit")


async def test_two_relays_at_once_store_one_status(office: Office, begun: Staged, tmp_path: Path) -> None:
    more = [await office.begin() for _ in range(20)]
    for staged in (begun, *more):
        await staged.decide()
    other = await journal_in(tmp_path)
    try:
        await asyncio.gather(office.relay.send(), office.new_relay(journal=other).send())
    finally:
        await other.close()
    assert await office.statuses() == [f"{staged.tx} committed 1" for staged in (begun, *more)]
    assert await office.journal.unsent() == ()


async def test_the_end_of_work_comes_before_the_outcome(office: Office, begun: Staged) -> None:
    for closing in (1, 2):
        await office.journal.queue_status(TransactionStatus(begun.tx, "work_ended", closing=closing), 1)
    await begun.decide("abort")
    assert await office.relay.send() == 3
    assert await office.statuses() == [f"{begun.tx} {word}" for word in ("work_ended 1", "work_ended 2", "aborted 1")]


async def test_an_outcome_follows_an_end_of_work_that_was_sent_long_ago(office: Office, begun: Staged) -> None:
    await office.journal.queue_status(TransactionStatus(begun.tx, "work_ended"), 1)
    await office.relay.send()
    await begun.decide()
    assert await office.relay.send() == 1
    assert await office.statuses() == [f"{begun.tx} work_ended 1", f"{begun.tx} committed 1"]


async def test_what_another_one_has_sent_is_marked_and_not_sent_again(office: Office, begun: Staged) -> None:
    ended = TransactionStatus(begun.tx, "work_ended")
    await office.journal.queue_status(ended, 1)
    await begun.decide()
    places = [await written(office, ended), await written(office, await begun.status("commit"))]
    await office.relay.send()
    assert await office.statuses() == [f"{begun.tx} work_ended 1", f"{begun.tx} committed 1"]
    dossier = await office.journal.show(begun.tx)
    assert dossier is not None
    assert sorted(one.sequence for one in dossier.statuses) == places


async def test_an_end_of_work_is_not_told_behind_the_outcome(office: Office, begun: Staged) -> None:
    await office.journal.queue_status(TransactionStatus(begun.tx, "work_ended"), 1)
    await written(office, TransactionStatus(begun.tx, "committed"))
    await office.relay.send()
    assert await office.statuses() == [f"{begun.tx} committed 1"]
    assert await office.journal.unsent() == ()


async def test_a_log_that_says_the_opposite_is_reported_and_left_alone(office: Office, begun: Staged) -> None:
    await begun.decide()
    await written(office, TransactionStatus(begun.tx, "aborted"))
    other = await office.begin()
    await other.decide()
    assert await office.relay.send() == 1
    assert await office.statuses() == [f"{begun.tx} aborted 1", f"{other.tx} committed 1"]
    assert len(await office.journal.unsent()) == 1
    assert "committed in the journal and aborted in the log" in office.reports[0]


async def test_a_lost_acknowledgement_makes_no_second_status(tutti_bus: BusKit, office: Office, begun: Staged) -> None:
    await office.relay.start()
    await office.relay.send()
    tutti_bus.cluster.lose_acknowledgements()
    await begun.decide()
    office.relay.relay()
    await sent_in_time(tutti_bus, office)
    await office.relay.close()
    assert await office.statuses() == [f"{begun.tx} committed 1"]
    assert office.failures == []


async def test_a_bus_that_is_away_is_asked_again(tutti_bus: BusKit, office: Office, begun: Staged) -> None:
    await office.relay.start()
    await begun.decide()
    transport = office.transport
    assert isinstance(transport, MemoryTransport)
    transport.cut()
    office.relay.relay()
    for _ in range(400):
        await asyncio.sleep(0.001)
        tutti_bus.clock.advance(0.1)
    assert len(await office.journal.unsent()) == 1
    transport.mend()
    await sent_in_time(tutti_bus, office)
    await office.relay.close()
    assert await office.statuses() == [f"{begun.tx} committed 1"]


async def test_a_log_that_was_deleted_is_made_anew(tutti_bus: BusKit, office: Office, begun: Staged) -> None:
    await office.relay.start()
    await office.relay.send()
    tutti_bus.cluster.delete(office.layout.status_stream)
    await begun.decide()
    office.relay.relay()
    await sent_in_time(tutti_bus, office)
    await office.relay.close()
    assert await office.statuses() == [f"{begun.tx} committed 1"]


async def test_what_nobody_told_us_of_is_sent_too(tutti_bus: BusKit, office: Office, begun: Staged) -> None:
    """Its sender died between the journal and the log."""
    await office.relay.start()
    await begun.decide()
    before = tutti_bus.clock.monotonic()
    await sent_in_time(tutti_bus, office)
    assert tutti_bus.clock.monotonic() - before < 3 * STATUS_RELAY_SECONDS
    await office.relay.close()


async def test_who_stops_sends_the_rest(tutti_bus: BusKit, office: Office, begun: Staged) -> None:
    await office.relay.start()
    await begun.decide()
    await office.relay.close()
    await office.relay.close()
    assert await office.statuses() == [f"{begun.tx} committed 1"]


async def test_many_calls_are_one_look(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    async def send(_: StatusRelay) -> int:
        looks.append(1)
        return 0

    monkeypatch.setattr(StatusRelay, "send", send)
    await office.relay.start()
    await asyncio.sleep(0)
    begun_with = len(looks)
    for _ in range(1_000):
        office.relay.relay()
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(looks) == begun_with + 1
    await office.relay.close()


async def test_a_status_that_fails_holds_back_the_later_ones_of_its_transaction_only(
    office: Office, begun: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await office.begin()
    await office.journal.queue_status(TransactionStatus(begun.tx, "work_ended"), 1)
    await begun.decide()
    await other.decide()
    append = office.transport.append

    def refusing(subject: str, *args: object, **options: object) -> asyncio.Future[object]:
        if not subject.endswith(begun.tx):
            return append(subject, *args, **options)  # type: ignore[arg-type, return-value]  # passed on as it is
        refused: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        refused.set_exception(tutti.Refused("full"))
        return refused

    monkeypatch.setattr(office.transport, "append", refusing)
    with pytest.raises(BusError, match="full"):
        await office.relay.send()
    monkeypatch.undo()
    assert await office.statuses() == [f"{other.tx} committed 1"]
    assert await office.relay.send() == 2
    assert (await office.statuses())[1:] == [f"{begun.tx} work_ended 1", f"{begun.tx} committed 1"]
