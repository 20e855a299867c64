"""All that can be told of one transaction, in the order in which it happened.

The journal gives the frame (begun, decided, announced), the log of the bus the events, the participants' log what those
on this host did. What cannot be reached is named in `gaps`, and the rest is told all the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

import msgspec

from tutti.errors import BusError, InvalidEvent, UnknownTransaction
from tutti.journal import Dossier, Parked, Resolution, Unknown
from tutti.model.enrolment import decode_enrolment, group_prefix
from tutti.model.transaction import PUBLISHER, Decision, TransactionRecord, journal_of, member_hash
from tutti.runtime.bus import Bus
from tutti.runtime.transactions.books import Books
from tutti.runtime.transactions.events import hear
from tutti.runtime.transactions.log import TransactionLog, count_named
from tutti.runtime.transactions.survey import Findings, Known, Situation, findings, situation

EVENTS_SHOWN_COUNT: Final = 200  # of one transaction; how many there are is said


class Moment(msgspec.Struct, frozen=True):
    """`at`: seconds since the epoch, by the clock of whoever noted it."""

    at: float
    who: str
    what: str


class MemberEnd(msgspec.Struct, frozen=True):
    """`end`: empty while it is not reported."""

    name: str
    hash: str
    vital: bool
    end: str = ""


class History(msgspec.Struct, frozen=True):
    situation: Situation
    moments: tuple[Moment, ...]
    members: tuple[MemberEnd, ...] = ()
    record: TransactionRecord | None = None
    decisions: tuple[Decision, ...] = ()
    events: int | None = None  # None: the log of the bus was not read
    parked: tuple[Parked, ...] = ()
    resolutions: tuple[Resolution, ...] = ()
    exceptions: tuple[str, ...] = ()  # what was finished by hand, against the decision
    gaps: tuple[str, ...] = ()


async def history(books: Books, bus: Bus | None, tx: str) -> History:
    """`UnknownTransaction` if nobody here has heard of it."""
    found = await findings(books, tx)
    journal = books.journal_for(tx)
    gaps: list[str] = []
    dossier: Dossier | None = None
    now = 0.0
    if journal is None:
        gaps.append(f"its journal, {journal_of(tx)}, is not here: only what participants here wrote down is told")
    else:
        now, dossier = await journal.now(), await journal.show(tx)
        if dossier is None:
            answer = await journal.decision(tx)
            if isinstance(answer, Decision):
                return _shrunk(tx, answer, found, now)
            if isinstance(answer, Unknown) and not found.rows:
                raise _unknown(books, tx)
    if dossier is None and not found.rows:
        raise _unknown(books, tx)
    names = await group_names(bus, dossier.entry.record.group if dossier is not None else "")
    told: list[Moment] = []
    events: int | None = None
    if bus is None:
        gaps.append("no server can be reached: its events are not shown")
    else:
        try:
            events, told = await _events(bus, tx, found, names)
        except (BusError, TimeoutError) as error:
            gaps.append(f"its events are not shown: {error}")
    known = Known(found)
    if dossier is not None:
        known = Known(found, dossier.entry, dossier.ended, dossier.heuristics)
        told += _by_journal(dossier)
    told += _by_participants(found)
    return History(
        situation=situation(tx, known, now, names),
        moments=tuple(sorted(told, key=lambda moment: moment.at)),
        members=_members(dossier, found, names) if dossier is not None else (),
        record=dossier.entry.record if dossier is not None else None,
        decisions=dossier.decisions if dossier is not None else (),
        events=events,
        parked=found.parked,
        resolutions=found.words,
        exceptions=tuple(_exceptions(dossier, found, names)),
        gaps=tuple(gaps),
    )


def _unknown(books: Books, tx: str) -> UnknownTransaction:
    return UnknownTransaction(
        f"{tx} is not known in {books.place}: neither to the journal nor to a participant",
        hint="`tutti tx ls --all` lists what is known; a transaction whose census failed never began",
    )


def _shrunk(tx: str, decision: Decision, found: Findings, now: float) -> History:
    """Long over: only the outcome is kept."""
    about = msgspec.structs.replace(
        situation(tx, Known(found), now),
        state="committed" if decision.outcome == "commit" else "aborted",
        outcome=decision.outcome,
        waits_for=(),
    )
    gap = "it is long over: of such transactions the journal keeps the outcome, and no more"
    return History(about, (), decisions=(decision,), gaps=(gap,), resolutions=found.words)


async def group_names(bus: Bus | None, group: str) -> dict[str, str]:
    """Members of a standing group by pseudonym, as far as that can be read."""
    names: dict[str, str] = {}
    if bus is not None and group:
        with contextlib.suppress(BusError, TimeoutError):
            for entry in await bus.context.transport.state_list(group_prefix(group)):
                if entry.value:
                    enrolment = decode_enrolment(entry.key, entry.value)
                    names[enrolment.pseudonym] = enrolment.subscriber
    return names


# What happened


async def _events(bus: Bus, tx: str, found: Findings, names: dict[str, str]) -> tuple[int, list[Moment]]:
    context = bus.context
    known = _names(tx, found, names)
    log = TransactionLog(context.transport, context.layout)
    told: list[Moment] = []
    count = 0
    for stream in sorted(await context.catalogue.streams()):
        info = await context.transport.stream_info(context.layout.event_stream(stream))
        if info is None or not info.messages:
            continue
        async with contextlib.aclosing(log.records_of(stream, tx, info.first, info.last)) as batches:
            async for record in (record async for records in batches for record in records):
                count += 1
                with contextlib.suppress(InvalidEvent):
                    heard = hear(record)
                    if heard is not None and len(told) < EVENTS_SHOWN_COUNT:
                        one = heard.consumed
                        who = "publisher" if one.publisher == PUBLISHER else _named(one.publisher, known)
                        what = f"published {one.type} {one.number} ({stream} {record.sequence})"
                        told.append(Moment(record.stored_at, who, what))
    return count, told


def _by_journal(dossier: Dossier) -> list[Moment]:
    entry = dossier.entry
    record = entry.record
    whom = f"the group {record.group}" if record.group else "a census"
    told = [Moment(entry.registered_at, "journal", f"registered for {_counted(len(record.members), whom)}")]
    if entry.decision is not None:
        reason = f": {entry.decision.reason}" if entry.decision.reason else ""
        told.append(Moment(entry.decided_at, "journal", f"decided {entry.decision.outcome}{reason}"))
    else:
        told.append(Moment(record.deadline, "journal", "deadline: aborted by then if it is not decided"))
    for queued in dossier.statuses:
        place = f"announced at {queued.sequence}" if queued.sequence else "waits to be announced"
        count = count_named(queued.status.events)
        said = f"status {queued.status.status}, {count} event{'' if count == 1 else 's'}, {place}"
        told.append(Moment(queued.queued_at, "journal", said))
    for one in dossier.heuristics:
        by = f" by {one.by}" if one.by else ""
        told.append(Moment(one.recorded_at, "by hand", f"{one.taken}{by}: {one.detail or one.place}"))
    return told


def _counted(members: int, whom: str) -> str:
    return f"{members} member{'' if members == 1 else 's'} of {whom}"


def _by_participants(found: Findings) -> list[Moment]:
    told = [
        Moment(p.parked_at, p.subscriber, f"compensation of {p.event.type} given up: {p.reason}") for p in found.parked
    ]
    for word in found.words:
        by = f" by {word.by}" if word.by else ""
        told.append(Moment(word.resolved_at, word.subscriber, f"resolved to {word.outcome}{by}"))
        if word.carried_out_at:
            told.append(Moment(word.carried_out_at, word.subscriber, f"finished so: {word.outcome}"))
    return told


# Members


def _names(tx: str, found: Findings, names: dict[str, str]) -> dict[str, str]:
    known = {member_hash(tx, pseudonym): name for pseudonym, name in names.items()}
    return known | {member_hash(tx, row.record.pseudonym): row.subscriber for row in found.rows}


def _named(member: str, known: dict[str, str]) -> str:
    return known.get(member, f"member {member[:8]}")


def _members(dossier: Dossier, found: Findings, names: dict[str, str]) -> tuple[MemberEnd, ...]:
    record, decision = dossier.entry.record, dossier.entry.decision
    known = _names(record.tx, found, names)
    ends = {end.member: end for end in dossier.ended}
    shown = []
    for member in record.members:
        end, said = ends.get(member), ""
        if end is not None:
            said = {"ended": end.outcome, "compensating": "compensating", "heuristic": f"{end.outcome}, by hand"}[
                end.state
            ]
        if decision is not None and member in decision.excluded:
            said = f"left out{', ' if said else ''}{said}"
        shown.append(MemberEnd(_named(member, known), member, member in record.vital, said))
    return tuple(shown)


def _exceptions(dossier: Dossier | None, found: Findings, names: dict[str, str]) -> Sequence[str]:
    """Branches that are finished otherwise than decided: nobody but people can mend that."""
    told = {}
    for word in found.words:
        if word.decided is not None:
            told[word.subscriber] = (
                f"{word.subscriber} was finished by hand as {word.outcome}; decided was {word.decided}"
            )
    decision = dossier.entry.decision if dossier is not None else None
    if dossier is not None and decision is not None:
        known = _names(dossier.entry.record.tx, found, names)
        for one in dossier.heuristics:
            name, decided = known.get(one.place, one.place), decision.outcome_for(one.place)
            if one.taken != decided:
                told[name] = f"{name} was finished by hand as {one.taken}; decided was {decided}"
    return sorted(told.values())
