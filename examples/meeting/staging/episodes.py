"""The five episodes: what is staged in each, and what must come of it.

Nobody in the play knows that it is one. We may do what the world does to processes: kill them with SIGKILL, cut their
wires, and let other people write into the same databases at the same moment.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from examples.meeting.staging.databases import Rows
from examples.meeting.staging.theatre import Theatre
from examples.meeting.staging.timeline import Entry
from examples.meeting.staging.wire import DECISION

SUBJECT: Final = "DSOnline"
ROOM: Final = "FW26"
LATER_TOLD: Final = ("ann", "bob", "tickets")  # of the decision in the last episode; rooms hears it first

Outcome = Literal["commit", "abort"]


@dataclass(frozen=True)
class Episode:
    number: int
    title: str
    story: str
    hour: int
    expected: Outcome
    promise: str  # what is expected, in words
    rows: Rows  # afterwards
    play: Callable[[Theatre, datetime], Awaitable[tuple[str, ...]]]  # returns what did not go as promised

    @property
    def starts(self) -> datetime:
        return datetime(2006, 3, 15, self.hour, tzinfo=UTC)


BOOKED: Final[Rows] = {
    "organiser": (SUBJECT,),
    "rooms": (f"{ROOM} {SUBJECT}",),
    "ann": (SUBJECT,),
    "bob": (SUBJECT,),
    "tickets": (f"{SUBJECT} sold",),
}
NOTHING: Final[Rows] = dict.fromkeys(BOOKED, ())


async def _organise(theatre: Theatre, starts: datetime, *, by_train: bool) -> tuple[str, ...]:
    """From the beginning to the end, and the organiser is told the outcome."""
    organiser = await theatre.organise(SUBJECT, starts, ROOM, by_train=by_train)
    code = await organiser.wait()
    if organiser.trouble or code not in {0, 1}:
        return (f"the organiser ended with {code}: {organiser.trouble}",)
    words = theatre.cast.named(" ".join(organiser.said))
    theatre.stage("organiser", sentence=f"ends, and reports: {words}")
    return ()


async def commit(theatre: Theatre, starts: datetime) -> tuple[str, ...]:
    return await _organise(theatre, starts, by_train=True)


async def abort_by_vote(theatre: Theatre, starts: datetime) -> tuple[str, ...]:
    await theatre.databases.book(ROOM, starts, "Faculty Board")
    return await _organise(theatre, starts, by_train=False)


async def abort_by_crash(theatre: Theatre, starts: datetime) -> tuple[str, ...]:
    """Ann's handler waits for somebody else's lock, and so it can be killed in the middle."""
    dentist = await theatre.databases.begin_entry("ann", starts, "dentist")
    organising = asyncio.create_task(_organise(theatre, starts, by_train=False))
    await theatre.until("ann", "handling")
    await theatre.databases.until_somebody_waits("ann")
    for name in ("rooms", "bob"):
        await theatre.until(name, "voted", vote="yes")
    ann = theatre.players["ann"]
    await ann.kill()
    theatre.stage(
        "ann", sentence=f"is killed with SIGKILL (pid {ann.pid}): she was at work, and had not voted", died=True
    )
    wrong = await organising
    await dentist.rollback()
    again = await theatre.serve("ann")
    theatre.stage("ann", sentence=f"is started again (pid {again.pid}), with nothing left to finish")
    voted = [one for one in theatre.history() if (one.who, one.step) == ("ann", "voted")]
    return (*wrong, *(["ann had voted before she was killed"] if voted else []))


async def compensation(theatre: Theatre, starts: datetime) -> tuple[str, ...]:
    """Bob's handler waits for somebody else's appointment, which is made when the tickets are sold."""
    dentist = await theatre.databases.begin_entry("bob", starts, "dentist")
    organising = asyncio.create_task(_organise(theatre, starts, by_train=True))
    await theatre.until("tickets", "voted", vote="yes")
    await theatre.databases.until_somebody_waits("bob")
    seen = (await theatre.databases.rows(starts))["tickets"]
    theatre.stage("tickets", sentence=f"shows to everybody, before anything is decided: {', '.join(seen) or 'nothing'}")
    theatre.stage("bob", sentence="is given another appointment at that hour by his secretary, just now")
    await dentist.commit()
    wrong = list(await organising)
    await theatre.until("tickets", "undone")
    if seen != BOOKED["tickets"]:
        wrong.append(f"tickets did not commit when it voted: {seen}")
    if sum(one.step == "undone" for one in theatre.history()) != 1:
        wrong.append("the compensation did not run exactly once")
    return tuple(wrong)


async def peers(theatre: Theatre, starts: datetime) -> tuple[str, ...]:
    """The wires of all but one break in front of the decision; when that one has it, the manager is killed. Only then
    are the wires mended."""
    for name in LATER_TOLD:
        theatre.wires[name].cut_before(DECISION, spared=theatre.transactions)
    organiser = await theatre.organise(SUBJECT, starts, ROOM, by_train=True)
    await theatre.until("rooms", "learned")
    await organiser.kill()
    killed = time.time()
    theatre.stage(
        "organiser", sentence=f"is killed with SIGKILL (pid {organiser.pid}), and the manager with it", died=True
    )
    for name in LATER_TOLD:
        async with asyncio.timeout(10):
            await theatre.wires[name].cut.wait()
    early = [one.who for one in theatre.history() if one.step == "learned" and one.who != "rooms"]
    blocked = [name for name in await theatre.databases.prepared() if name in LATER_TOLD]
    theatre.stage(*LATER_TOLD, sentence="has lost its wire in front of the decision, and did not hear it")
    theatre.stage(*blocked, sentence="has voted yes, and may not decide alone: its locks stay")
    for name in LATER_TOLD:
        theatre.wires[name].mend()
    theatre.stage(*LATER_TOLD, sentence="is on the network again")
    told = [await theatre.until(name, "learned") for name in LATER_TOLD]
    succeeded = await theatre.until("deputy", "succeeded")
    await theatre.until("deputy", "over")
    theatre.notes += told_whom(theatre, told, killed, succeeded)
    wrong = [f"{name} had its decision before the organiser was killed" for name in early]
    wrong += [f"{one.who} was not told by a peer" for one in told if not one.said.get("peer")]
    wrong += [f"{one.who} was told after a successor had the lease" for one in told if one.time >= succeeded.time]
    wrong += ["nobody was blocked when the organiser died"] if set(blocked) != {"ann", "bob"} else []
    return tuple(wrong)


def told_whom(theatre: Theatre, told: Sequence[Entry], killed: float, succeeded: Entry) -> list[str]:
    by = [
        f"{theatre.cast.name(str(one.said.get('peer', '')))} told {one.who}"
        for one in sorted(told, key=lambda o: o.time)
    ]
    last = max(one.time for one in told) - killed
    return [
        f"who told whom: {', '.join(by)}",
        f"all knew {last:.1f} s after the manager had died; its successor came after {succeeded.time - killed:.1f} s",
    ]


EPISODES: Final = (
    Episode(
        1,
        "Everybody plays",
        "The organiser invites to DSOnline. The room is free, Ann and Bob have time, there are tickets.",
        9,
        "commit",
        "the meeting is in all five databases",
        BOOKED,
        commit,
    ),
    Episode(
        2,
        "One says no",
        "Nobody has to travel, so tickets is not interested. The room is taken: an exception in a handler is a no, and "
        "one no is enough.",
        10,
        "abort",
        "nothing of it is in any database",
        {**NOTHING, "rooms": (f"{ROOM} Faculty Board",)},
        abort_by_vote,
    ),
    Episode(
        3,
        "One dies",
        "Ann's process is killed before she votes. Her heartbeat is missing; the manager counts that as a no.",
        11,
        "abort",
        "nothing of it is in any database",
        NOTHING,
        abort_by_crash,
    ),
    Episode(
        4,
        "One cannot wait",
        "The railway sells at once: tickets commits when it votes. Then Bob says no, and what was sold is given back.",
        14,
        "abort",
        "nothing of it is in any database; the ticket was sold, and is refunded",
        {**NOTHING, "bob": ("dentist",), "tickets": (f"{SUBJECT} refunded",)},
        compensation,
    ),
    Episode(
        5,
        "The manager dies in the worst moment",
        "The decision is commit, and only rooms has heard it when the organiser, with the manager in its process, is "
        "killed. The others have voted yes and may not decide alone. They ask each other.",
        15,
        "commit",
        "the meeting is in all five databases, and all had it from their peers before a successor came",
        BOOKED,
        peers,
    ),
)
