"""What the processes of the journal tests do: `python -m tests.integration.journal_processes <address> <task> …`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tutti.errors import Fenced
from tutti.journal import Journal, Proposal
from tutti.journal.postgres import PostgresJournal
from tutti.journal.sqlite import SqliteJournal
from tutti.model.transaction import Outcome, TransactionRecord


def journal_at(address: str) -> Journal:
    return PostgresJournal(address) if address.startswith("postgresql:") else SqliteJournal(Path(address))


def say(*words: str) -> None:
    print(*words, flush=True)


async def race(journal: Journal, outcome: Outcome, transactions: list[str]) -> None:
    """Propose the outcome for all of them, and say what stands for each."""
    for tx in transactions:
        say(tx, (await journal.decide(Proposal(tx, outcome, 1))).outcome)


async def inherit(journal: Journal, manager: str, transactions: list[str]) -> None:
    """Try to become the manager of each, and say of which."""
    for tx in transactions:
        try:
            await journal.take_over(tx, expected=1, manager=manager)
        except Fenced:
            continue
        say(tx)


async def pour(journal: Journal, name: str) -> None:
    """Register and decide for ever, and say what was acknowledged, until somebody kills this."""

    async def one(lane: int) -> None:
        number = 0
        while True:
            number += 1
            tx = f"{journal.id}-{name}x{lane}x{number}"
            await journal.register(TransactionRecord(tx, "Meeting", 1.0, name, 1))
            outcome: Outcome = "commit" if number % 3 else "abort"
            await journal.decide(Proposal(tx, outcome, 1, claims=(tx,) if outcome == "commit" else ()))
            say(tx, outcome)

    await asyncio.gather(*(one(lane) for lane in range(8)))


async def main(address: str, task: str, *words: str) -> None:
    journal = journal_at(address)
    await journal.start()
    say("ready")
    sys.stdin.readline()  # everybody begins together
    match task:
        case "commit" | "abort" as outcome:
            await race(journal, outcome, list(words))
        case "inherit":
            await inherit(journal, words[0], list(words[1:]))
        case _:
            await pour(journal, words[0])
    await journal.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
