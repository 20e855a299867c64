"""`tutti tx show`: all that is known of one transaction, as a timeline."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
from rich.console import RenderableType
from rich.text import Text

from tutti.cli.desk import desk
from tutti.cli.options import Session
from tutti.cli.output import counted
from tutti.cli.queues import age
from tutti.cli.transactions import COLOURS, said_of
from tutti.runtime.transactions.history import History, history


class TransactionDetails(msgspec.Struct, frozen=True):
    known: History
    hint: str = ""

    def as_json(self) -> dict[str, object]:
        return {**msgspec.to_builtins(self.known), "hint": self.hint}

    def __rich__(self) -> RenderableType:
        known, one = self.known, self.known.situation
        text = Text.assemble((one.tx, "bold"), f" {one.type}  ", (one.state, COLOURS[one.state]), "\n")
        for name, value in self._head():
            text.append(f"{name:<11}", "dim").append(f"{value}\n")
        for member in known.members:
            end = member.end or "has not reported its end" if one.outcome else member.end or "takes part"
            text.append(f"{'member':<11}", "dim").append(
                f"{member.name}: {end}{'' if member.vital else ' (not vital)'}\n"
            )
        for part in one.parts:
            where = f", {part.instance}" if part.instance else ""
            databases = f", {', '.join(part.resources)}" if part.resources else ""
            text.append(f"{'here':<11}", "dim").append(f"{said_of(part)}{where}{databases}\n")
        for said in known.exceptions:
            text.append(f"{'exception':<11}", "bold red").append(f"{said}\n")
        text.append_text(self._timeline())
        for gap in known.gaps:
            text.append(f"not shown: {gap}\n", "dim")
        if self.hint:
            text.append(f"→ {self.hint}\n")
        text.rstrip()
        return text

    def _head(self) -> list[tuple[str, str]]:
        known, one = self.known, self.known.situation
        head = []
        if one.outcome is not None:
            head.append(("decided", one.outcome + (f": {one.reason}" if one.reason else "")))
        elif one.left is not None:
            due = f"in {age(one.left)}" if one.left > 0 else f"{age(-one.left)} ago"
            head.append(
                ("decided", f"not yet; the deadline is {due}" if one.left > 0 else f"no; the deadline was {due}")
            )
        if one.waits_for:
            head.append(("waits for", "; ".join(one.waits_for)))
        if one.manager:
            head.append(("manager", f"{one.manager}, {'alive' if one.manager_lives else 'silent'}"))
        if known.record is not None:
            whom = f"the group {one.group}" if one.group else "a census"
            head.append(("with", f"{whom}, {one.scope}"))
            if known.record.resources:
                head.append(("publisher", f"enlisted {', '.join(known.record.resources)}"))
        if known.events is not None:
            head.append(("events", counted(known.events, "event") + " in the log"))
        return head

    def _timeline(self) -> Text:
        text = Text()
        days = {_moment(moment.at)[0] for moment in self.known.moments}
        width = max((len(moment.who) for moment in self.known.moments), default=0)
        for moment in self.known.moments:
            day, time = _moment(moment.at)
            shown = f"{day} {time}" if len(days) > 1 else time
            text.append(f"  {shown}  ", "dim").append(f"{moment.who:<{width}}  ", "bold").append(f"{moment.what}\n")
        return text


def _moment(at: float) -> tuple[str, str]:
    moment = datetime.fromtimestamp(at, UTC)
    return moment.date().isoformat(), f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03}"


async def show_transaction(session: Session, journal: str, tx: str) -> None:
    async with desk(session, journal, bus=True) as at:
        known = await history(at.books, at.bus, tx)
        session.output.show(TransactionDetails(known, advice(known)))


def advice(known: History) -> str:
    """What an operator may do now, if anything."""
    one = known.situation
    if known.exceptions:
        return f"mend by hand what was finished otherwise than decided, then `tutti tx forget {one.tx}`"
    if one.heuristics and one.state in {"committed", "aborted"}:
        return f"`tutti tx forget {one.tx}` once it is settled"
    parked = [part.subscriber for part in one.parts if part.parked]
    if parked:
        return f"remove what stops the compensation of {', '.join(parked)}, then `tutti tx retry {one.tx}`"
    silent = [part.subscriber for part in one.parts if part.state == "in doubt" and not part.lives]
    resolved = [part.subscriber for part in one.parts if part.state == "resolved" and not part.lives]
    if resolved and one.outcome is not None:
        return f"start {', '.join(resolved)}, which reports its end; then `tutti tx forget {one.tx}`"
    match one.state:
        case "in doubt" if silent and one.age is None:
            lost = f"if its journal is gone for good, `tutti tx resolve {one.tx} commit|rollback`"
            return f"start {', '.join(silent)}, which asks for the decision; {lost}"
        case "in doubt":
            return (
                f"`tutti tx abort {one.tx}`, or wait for its deadline; start {', '.join(silent) or 'its participants'}"
            )
        case "orphaned":
            return "start a process that shares its journal (`tutti up`): it takes over, and aborts what is undecided"
        case "overdue":
            return f"its manager should have aborted it: `tutti tx abort {one.tx}`"
        case "committing" | "aborting" if silent:
            return f"start {', '.join(silent)}; or `tutti tx resolve {one.tx} {_word(one.outcome)} --resources …`"
        case "active":
            return f"nothing, or `tutti tx abort {one.tx}`"
        case _:
            return ""


def _word(outcome: str | None) -> str:
    return "commit" if outcome == "commit" else "rollback"
