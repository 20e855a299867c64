"""What `tutti doctor` says of transactions: journals, managers, participants, compensations, prepared branches.

As in `doctor`, facts are collected first; what they mean is decided by the `about_…` functions.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from tutti.cli.desk import place_of, reached
from tutti.cli.findings import Finding
from tutti.cli.options import Session
from tutti.cli.output import counted
from tutti.cli.queues import age
from tutti.errors import BusError, DeclarationError, TuttiError
from tutti.journal import Entry
from tutti.model.messages import Decide, Standing
from tutti.model.transaction import Decision, journal_of
from tutti.resources import InDoubt, Resource
from tutti.runtime.bus import Bus
from tutti.runtime.transactions.books import Books, opened
from tutti.runtime.transactions.channel import Channel
from tutti.runtime.transactions.history import history
from tutti.runtime.transactions.own import OWNER
from tutti.runtime.transactions.reaping import ask_recovery
from tutti.runtime.transactions.survey import Part, Situation, survey
from tutti.runtime.transactions.trust import Trust

PREPARED_SECONDS: Final = 10.0  # younger branches are under way
ANNOUNCE_SECONDS: Final = 10.0  # a decision is announced at once, or by the next who looks: within seconds


class Orphan(msgspec.Struct, frozen=True):
    """A prepared branch that no open row explains. `known`: how its transaction was decided, or that it is not, or
    (None) that nobody can say."""

    resource: str
    doubt: InDoubt
    known: str | None


async def transaction_findings(
    session: Session, bus: Bus | None, journal: str, resources: Sequence[str]
) -> list[Finding]:
    """Nothing, where nobody has begun or joined a transaction yet."""
    place = place_of(session, journal)
    findings: list[Finding] = []
    situations: list[Situation] = []
    try:
        async with opened(place) as books:
            situations = await survey(books)
            late = await _late(books)
            findings += about_journal(books.journal.id if books.journal is not None else "", str(place), situations)
            findings += about_situations(situations)
            findings += about_exceptions(
                [said for one in situations if one.heuristics for said in await _odd(books, one)]
            )
            findings += about_unannounced(late)
            findings += await _unreachable(bus, books.journal.id if books.journal is not None else "", situations)
            findings += await _orphans(books, bus, resources, situations)
    except DeclarationError as error:
        if journal or resources:
            findings.append(Finding("problem", "journal", error.what, error.hint))
        else:
            findings += await _unreachable(bus, "", situations)
    except TuttiError as error:
        findings.append(Finding("problem", "journal", f"{place}: {error.what}", error.hint))
    return findings


# Facts


async def _late(books: Books) -> list[Entry]:
    """Decided a while ago, and the bus was not told."""
    if books.journal is None:
        return []
    now = await books.journal.now()
    return [e for e in await books.journal.entries(unannounced=True) if now - e.decided_at > ANNOUNCE_SECONDS]


async def _odd(books: Books, one: Situation) -> Sequence[str]:
    return [f"{one.tx}: {said}" for said in (await history(books, None, one.tx)).exceptions]


async def _unreachable(bus: Bus | None, here: str, situations: Sequence[Situation]) -> list[Finding]:
    """Journals that somebody needs, and for which nobody answers. The one that is here can be read."""
    if bus is None:
        return []
    trust = Trust(bus.context.transport, bus.context.trusted)
    channel = Channel(bus.context.transport, bus.context.clock, lambda: trust.key)
    try:
        await trust.load()
        asked = {journal_of(one.tx): one.tx for one in situations}
        if trust.journal:
            asked.setdefault(trust.journal, f"{trust.journal}-doctor-1")
        asked.pop(here, None)
        silent = [name for name, tx in asked.items() if await ask_recovery(channel, bus.context.layout, tx) is None]
    except (BusError, TimeoutError) as error:
        return [Finding("problem", "journal", f"whether journals answer cannot be asked: {error}")]
    waiting = {name: [one for one in situations if journal_of(one.tx) == name] for name in silent}
    return [finding for name in sorted(silent) for finding in about_silent_journal(name, waiting[name])]


async def _orphans(
    books: Books, bus: Bus | None, places: Sequence[str], situations: Sequence[Situation]
) -> list[Finding]:
    if not places:
        return []
    explained = {(part.subscriber, one.tx) for one in situations for part in one.parts}
    try:
        async with reached(places) as resources:
            found = [await _orphan(books, bus, r, doubt) for r in resources for doubt in await _old(r, explained)]
            return [*about_resources(resources), *about_orphans(found, time.time())]
    except TuttiError as error:
        return [Finding("problem", "resource", error.what, error.hint)]


async def _old(resource: Resource[Any], explained: set[tuple[str, str]]) -> list[InDoubt]:
    if not resource.prepares:
        return []
    old = time.time() - PREPARED_SECONDS
    return [
        doubt
        for doubt in await resource.recover()
        if doubt.prepared_at < old and (doubt.branch.owner, doubt.branch.tx) not in explained
    ]


async def _orphan(books: Books, bus: Bus | None, resource: Resource[Any], doubt: InDoubt) -> Orphan:
    tx, known = doubt.branch.tx, None
    try:
        journal = books.journal_for(tx)
        if journal is not None:
            answer = await journal.decision(tx)
            known = answer.outcome if isinstance(answer, Decision) else type(answer).__name__.lower()
        elif bus is not None:
            trust = Trust(bus.context.transport, bus.context.trusted)
            await trust.load()
            channel = Channel(bus.context.transport, bus.context.clock, lambda: trust.key)
            match await ask_recovery(channel, bus.context.layout, tx):
                case Decide() as decide:
                    known = decide.outcome
                case Standing() as standing:
                    known = standing.answer
                case None:
                    pass
    except (DeclarationError, BusError):
        known = None
    return Orphan(resource.name, doubt, known)


# What the facts mean


def about_journal(journal: str, place: str, situations: Sequence[Situation]) -> Iterator[Finding]:
    held = counted(len(situations), "open transaction")
    if journal:
        yield Finding("ok", "journal", f"{journal} in {place}: {held}")
    else:
        yield Finding("ok", "journal", f"{place} has a participants' log and no journal: {held} of participants here")


def about_silent_journal(journal: str, waiting: Sequence[Situation]) -> Iterator[Finding]:
    todo = "start a process that shares it: `tutti up` on its host"
    if waiting:
        said = f"{journal} cannot be reached, and {counted(len(waiting), 'transaction')} here cannot end without it"
        yield Finding("problem", "journal", said, f"{todo}; if it is gone for good, `tutti tx resolve` each")
    else:
        yield Finding("warning", "journal", f"nobody answers for {journal}, which decides in this namespace", todo)


def about_situations(situations: Sequence[Situation]) -> Iterator[Finding]:
    silent: dict[str, list[str]] = {}
    for one in situations:
        if one.manager and not one.manager_lives and one.state not in {"committed", "aborted"}:
            silent.setdefault(one.manager, []).append(one.tx)
    for manager, left in silent.items():
        said = f"{manager} is gone and left {counted(len(left), 'open transaction')}: {_some(left)}"
        todo = "start `tutti up`, or a publisher, on this journal: it takes over within seconds"
        yield Finding("problem", "manager", said, todo)
    for one in situations:
        if one.state == "overdue":
            said = f"{one.tx} is {age(-(one.left or 0.0))} past its deadline, and its manager has not aborted it"
            yield Finding("problem", "transaction", said, f"`tutti tx abort {one.tx}`")
        for part in one.parts:
            yield from _about_part(one, part)
        if one.heuristics:
            said = f"{one.tx}: {', '.join(one.heuristics)} finished by hand, and not forgotten"
            yield Finding("warning", "by hand", said, f"`tutti tx show {one.tx}`, then `tutti tx forget {one.tx}`")


def _about_part(one: Situation, part: Part) -> Iterator[Finding]:
    if part.parked:
        said = f"{one.tx}: {counted(part.parked, 'compensation')} of {part.subscriber} given up"
        yield Finding("problem", "compensation", said, f"remove the reason, then `tutti tx retry {one.tx}`")
    if part.state == "in doubt" and not part.lives:
        said = f"{part.subscriber} voted yes in {one.tx} and is not running: what it holds stays locked"
        yield Finding("problem", "in doubt", said, f"start {part.subscriber}; or see `tutti tx show {one.tx}`")


def about_exceptions(said: Sequence[str]) -> Iterator[Finding]:
    for one in said:
        tx = one.partition(":")[0]
        yield Finding("problem", "by hand", one, f"mend the data by hand, then `tutti tx forget {tx}`")


def about_unannounced(late: Sequence[Entry]) -> Iterator[Finding]:
    if late:
        left = [entry.record.tx for entry in late]
        said = f"{counted(len(left), 'transaction')} decided and not announced: {_some(left)}"
        todo = "start `tutti up`, or a publisher, on this journal; if one runs, see its log"
        yield Finding("warning", "status", said, todo)


def about_resources(resources: Sequence[Resource[Any]]) -> Iterator[Finding]:
    for resource in resources:
        if not resource.prepares:
            yield Finding("ok", "resource", f"{resource.name} cannot prepare, so nothing is left in it")


def about_orphans(orphans: Sequence[Orphan], now: float) -> Iterator[Finding]:
    for one in orphans:
        branch = one.doubt.branch
        said = f"{one.resource}: {branch} is prepared for {age(now - one.doubt.prepared_at)}, and"
        whose = "a publisher" if branch.owner == OWNER else branch.owner
        match one.known:
            case "abort":
                todo = f"start {whose} with this database: within seconds it rolls the branch back"
                yield Finding("problem", "branch", f"{said} its transaction has aborted", todo)
            case "commit":
                todo = f"start {whose} with its own log, on its own host: it commits the branch"
                yield Finding("problem", "branch", f"{said} its transaction has committed", todo)
            case "undecided":
                yield Finding(
                    "warning", "branch", f"{said} its transaction is not decided", f"`tutti tx show {branch.tx}`"
                )
            case _:
                todo = "look for the host that has its journal or log; if there is none, finish it in the database"
                yield Finding("problem", "branch", f"{said} nobody knows its transaction", todo)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
