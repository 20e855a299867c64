"""`tutti dead`: events that could not be handled, and what becomes of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from rich.console import RenderableType
from rich.text import Text

from tutti.cli.options import Session
from tutti.cli.output import cell, counted, one_line_table
from tutti.errors import DeclarationError
from tutti.runtime.bus import Bus
from tutti.runtime.dead import DeadLetter


class LetterRow(msgspec.Struct, frozen=True):
    number: int
    subscriber: str
    subscription: str
    event_type: str
    event_id: str
    reason: str
    attempts: int
    buried_at: str


class LetterList(msgspec.Struct, frozen=True):
    letters: list[LetterRow]

    def __rich__(self) -> RenderableType:
        if not self.letters:
            return "no dead letters"
        table = one_line_table(
            "no.", "when", "handler", "type", "id", "tries", "reason", cut=("handler", "type", "reason")
        )
        today = datetime.now(UTC).date().isoformat()
        for row in self.letters:
            day, _, time = row.buried_at.partition("T")
            cells = (
                str(row.number),
                time[:8] if day == today else day,
                f"{row.subscriber}.{row.subscription}",
                row.event_type or "unreadable",
                row.event_id,
                str(row.attempts),
                row.reason.partition("\n")[0],
            )
            table.add_row(*map(cell, cells))
        return table


class LetterDetails(msgspec.Struct, frozen=True):
    letter: LetterRow
    source: str
    stream: str
    sequence: int
    subject: str
    headers: dict[str, str]
    data: Any  # as JSON gives it; else the text
    traceback: str

    def __rich__(self) -> RenderableType:
        row = self.letter
        lines = [
            f"dead letter {row.number} of {row.subscriber}.{row.subscription}, {row.buried_at}",
            f"reason     {row.reason}",
            f"attempts   {row.attempts}",
            f"event      {row.event_type} {row.event_id} from {self.source}",
            f"place      {self.stream} {self.sequence}, subject {self.subject}"
            if self.stream
            else "place      a queue",
            f"data       {msgspec.json.encode(self.data).decode()}",
            *(f"  {name}: {value}" for name, value in self.headers.items()),
        ]
        return Text("\n".join([*lines, "", self.traceback] if self.traceback else lines))


class Settled(msgspec.Struct, frozen=True):
    """What was done with letters; a list of their numbers."""

    done: Literal["replayed", "dropped"]
    numbers: list[int]

    def __rich__(self) -> RenderableType:
        count = counted(len(self.numbers), "dead letter")
        return f"{self.done} {count}: {', '.join(map(str, self.numbers)) or 'there were none'}"


def row_of(letter: DeadLetter) -> LetterRow:
    return LetterRow(
        number=letter.number,
        subscriber=letter.subscriber,
        subscription=letter.subscription,
        event_type=letter.event_type,
        event_id=letter.event_id,
        reason=letter.reason,
        attempts=letter.attempts,
        buried_at=letter.buried_at,
    )


def details_of(letter: DeadLetter) -> LetterDetails:
    try:
        data = msgspec.json.decode(letter.payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        data = letter.payload.decode("utf-8", "backslashreplace")
    return LetterDetails(
        letter=row_of(letter),
        source=letter.source,
        stream=letter.stream,
        sequence=letter.sequence,
        subject=letter.subject,
        headers=letter.headers,
        data=data,
        traceback=letter.traceback,
    )


async def show_letters(session: Session, subscriber: str) -> None:
    async with session.bus(create=False) as bus:
        rows = [row_of(letter) async for letter in bus.dead.each(subscriber or None)]
    session.output.show(LetterList(rows))


async def show_one_letter(session: Session, number: int) -> None:
    async with session.bus(create=False) as bus:
        session.output.show(details_of(await bus.dead.get(number)))


async def settle_letters(
    session: Session, done: Literal["replayed", "dropped"], numbers: list[int], *, every: bool, subscriber: str
) -> int | None:
    """Replay or drop. One that cannot be is an error, after those before it were."""
    if every == bool(numbers):
        raise DeclarationError("no letters are named" if not every else "both numbers and --all are given", hint=_NAME)
    if subscriber and not every:
        raise DeclarationError("--subscriber says which letters --all means", hint=_NAME)
    async with session.bus(create=False) as bus:
        chosen = [letter.number async for letter in bus.dead.each(subscriber or None)] if every else numbers
        for number in chosen:
            await _settle_one(bus, done, number)
    session.output.show(Settled(done, chosen))
    return None


_NAME = "name them by number, as in `tutti dead ls`, or say --all"


async def _settle_one(bus: Bus, done: Literal["replayed", "dropped"], number: int) -> None:
    if done == "replayed":
        await bus.dead.replay(number)
    else:
        await bus.dead.drop(number)
