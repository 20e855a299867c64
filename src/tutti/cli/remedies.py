"""`tutti tx abort`, `resolve`, `forget` and `retry`: what an operator does about one transaction."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.console import RenderableType
from rich.text import Text

from tutti.cli.desk import desk, operator_name, reached
from tutti.cli.options import Session
from tutti.errors import DeclarationError
from tutti.model.transaction import Outcome
from tutti.runtime.transactions.interventions import Aborted, Branch, Operator


class AbortedTransaction(msgspec.Struct, frozen=True):
    result: Aborted

    def as_json(self) -> object:
        return self.result

    def __rich__(self) -> RenderableType:
        done = self.result
        said = f"{done.tx} was aborted before: {done.reason}" if done.already else f"{done.tx} is aborted"
        if done.told:
            return f"{said}; its members and its manager were told"
        return f"{said}; nobody was told now: {done.why}"


class ResolvedTransaction(msgspec.Struct, frozen=True):
    tx: str
    outcome: Outcome
    branches: list[Branch]

    def __rich__(self) -> RenderableType:
        text = Text()
        for branch in self.branches:
            mark = ("✓", "green") if branch.done else ("…", "yellow")
            word = "committed" if branch.outcome == "commit" else "rolled back"
            said = word if branch.done else f"to be {word}"
            text.append_text(Text.assemble(mark, " ", (branch.place, "bold"), f" {said}: {branch.how}\n"))
        return text.append(f"shown in `tutti tx show {self.tx}` until `tutti tx forget {self.tx}`")


class ForgottenTransaction(msgspec.Struct, frozen=True):
    tx: str
    places: list[str]

    def __rich__(self) -> RenderableType:
        return f"{self.tx}: what was done by hand is forgotten ({', '.join(self.places)})"


class RetriedTransaction(msgspec.Struct, frozen=True):
    tx: str
    subscribers: list[str]

    def __rich__(self) -> RenderableType:
        names = ", ".join(self.subscribers)
        return f"{self.tx}: {names} compensates again, within seconds if it runs, else when it is started"


async def abort_transaction(session: Session, tx: str, journal: str, reason: str, resources: Sequence[str]) -> None:
    async with desk(session, journal, bus=True) as at, reached(resources) as databases:
        operator = Operator(at.books, by=operator_name(), bus=at.bus, resources=databases)
        session.output.show(AbortedTransaction(await operator.abort(tx, reason)))


async def resolve_transaction(
    session: Session, tx: str, outcome: str, journal: str, *, subscriber: str, resources: Sequence[str]
) -> int:
    """1 if something is still to be done."""
    wanted = _outcome(outcome)
    async with desk(session, journal, bus=False) as at, reached(resources) as databases:
        operator = Operator(at.books, by=operator_name(), bus=None, resources=databases)
        branches = await operator.resolve(tx, wanted, subscriber)
        session.output.show(ResolvedTransaction(tx, wanted, branches))
    return 0 if all(branch.done for branch in branches) else 1


def _outcome(text: str) -> Outcome:
    match text:
        case "commit":
            return "commit"
        case "rollback" | "abort":
            return "abort"
        case _:
            raise DeclarationError(f"a branch cannot be resolved to {text!r}", hint="say commit or rollback")


async def forget_transaction(session: Session, tx: str, journal: str, *, force: bool) -> None:
    async with desk(session, journal, bus=False) as at:
        places = await Operator(at.books, by=operator_name(), bus=None).forget(tx, force=force)
        session.output.show(ForgottenTransaction(tx, places))


async def retry_transaction(session: Session, tx: str, journal: str, subscriber: str) -> None:
    async with desk(session, journal, bus=False) as at:
        names = await Operator(at.books, by=operator_name(), bus=None).retry(tx, subscriber)
        session.output.show(RetriedTransaction(tx, names))
