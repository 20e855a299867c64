"""`tutti tx ls` and `tutti tx watch`: what is under way, and who is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal, get_args

import msgspec
from rich.console import RenderableType
from rich.text import Text

from tutti.cli.desk import Desk, desk
from tutti.cli.options import Session
from tutti.cli.output import cell, counted, one_line_table
from tutti.cli.queues import age
from tutti.errors import DeclarationError
from tutti.limits import WATCH_SECONDS
from tutti.runtime.transactions.history import group_names
from tutti.runtime.transactions.survey import STATES, Part, Situation, State, survey

COLOURS: dict[State, str] = {
    "active": "cyan",
    "overdue": "yellow",
    "orphaned": "bold red",
    "in doubt": "bold yellow",
    "committing": "cyan",
    "aborting": "magenta",
    "compensating": "bold magenta",
    "committed": "green",
    "aborted": "red",
}


class TransactionList(msgspec.Struct, frozen=True):
    """`place`: where was looked. `every`: also what is over."""

    transactions: list[Situation]
    place: str
    every: bool = False

    def __rich__(self) -> RenderableType:
        if not self.transactions:
            return f"no {'transactions' if self.every else 'open transactions'} in {self.place}"
        table = one_line_table(
            "id", "type", "state", "age", "ended", "here", "waits for", cut=("type", "here", "waits for")
        )
        for one in self.transactions:
            waits = "; ".join(one.waits_for)
            if one.heuristics:
                waits = f"by hand: {', '.join(one.heuristics)}" + (f"; {waits}" if waits else "")
            table.add_row(
                Text(one.tx),
                cell(one.type),
                Text(one.state, COLOURS[one.state]),
                age(one.age) if one.age is not None else "",
                f"{one.ended}/{one.members}" if one.age is not None else "",
                cell(", ".join(map(said_of, one.parts))),
                cell(waits),
            )
        return table


def said_of(part: Part) -> str:
    """A participant of this host, in a few words."""
    words: list[str] = [part.state]
    if part.parked:
        words.append(f"{counted(part.parked, 'compensation')} parked")
    if part.state == "resolved" and part.heuristic is not None:
        words = [f"resolved: {part.heuristic}"]
    if not part.lives and part.state not in {"committed", "aborted"}:
        words.append("not running")
    return f"{part.subscriber} ({', '.join(words)})"


class Change(msgspec.Struct, frozen=True):
    """What `watch` tells: a transaction appeared, became something else, or is over."""

    change: Literal["appeared", "changed", "over"]
    transaction: Situation

    def __rich__(self) -> RenderableType:
        one = self.transaction
        waits = f"  waits for {'; '.join(one.waits_for)}" if one.waits_for and self.change != "over" else ""
        here = f"  {', '.join(map(said_of, one.parts))}" if one.parts else ""
        return Text.assemble(one.tx, " ", one.type, " ", (self._state, COLOURS[one.state]), here, waits)

    @property
    def _state(self) -> str:
        return f"{self.transaction.state} (over)" if self.change == "over" else self.transaction.state


def checked_state(text: str) -> State | None:
    wanted = text.strip().lower().replace("-", " ")
    if not wanted:
        return None
    for state in STATES:
        if state == wanted:
            return state
    raise DeclarationError(f"no transaction is {text!r}", hint=f"--state takes {', '.join(get_args(State))}")


async def show_transactions(session: Session, journal: str, state: str, *, every: bool) -> None:
    wanted = checked_state(state)
    async with desk(session, journal, bus=False) as at:
        found = await _surveyed(session, at, every=every or wanted in {"committed", "aborted"})
        chosen = [one for one in found if wanted is None or one.state == wanted]
        session.output.show(TransactionList(chosen, str(at.books.place), every))


async def _surveyed(session: Session, at: Desk, *, every: bool) -> list[Situation]:
    """With the names of group members on other hosts, where somebody waits for one and the bus can tell."""
    found = await survey(at.books, every=every)
    groups = {one.group for one in found if one.group and any(w.startswith("member ") for w in one.waits_for)}
    if not groups:
        return found
    async with desk(session, at.books.place.journal, bus=True) as other:
        names: dict[str, str] = {}
        for group in groups:
            names |= await group_names(other.bus, group)
    return await survey(at.books, every=every, names=names)


# Live


async def watch_transactions(session: Session, journal: str) -> None:
    """Until Ctrl-C."""
    async with desk(session, journal, bus=False) as at:
        session.output.note(f"transactions of {at.books.place}; Ctrl-C ends")
        known: dict[str, Situation] = {}
        with session.output.screen() as screen:
            while True:
                found = await survey(at.books)
                if screen is not None:
                    screen(TransactionList(found, str(at.books.place)))
                else:
                    for change in changes(known, found, await _over(at, known, found)):
                        session.output.show(change)
                known = {one.tx: one for one in found}
                await asyncio.sleep(WATCH_SECONDS)


async def _over(at: Desk, known: dict[str, Situation], found: Sequence[Situation]) -> dict[str, Situation]:
    """How those ended that are not open any more."""
    gone = known.keys() - {one.tx for one in found}
    if not gone:
        return {}
    return {one.tx: one for one in await survey(at.books, every=True) if one.tx in gone}


def changes(known: dict[str, Situation], found: Sequence[Situation], over: dict[str, Situation]) -> list[Change]:
    """What is told: not that time passes."""
    told = [Change("over", over.get(tx, before)) for tx, before in known.items() if tx not in {f.tx for f in found}]
    for one in found:
        before = known.get(one.tx)
        if before is None:
            told.append(Change("appeared", one))
        elif _timeless(before) != _timeless(one):
            told.append(Change("changed", one))
    return told


def _timeless(one: Situation) -> Situation:
    return msgspec.structs.replace(one, age=None, left=None)
