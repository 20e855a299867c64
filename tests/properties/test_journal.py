"""The journal against a model of a few lines: any calls of any managers, with crashes between them.

The model says what must stand; the journal may refuse only what the model refuses, and by the same name. After every
call: what was decided has not changed, and epochs only grow. `World(seed)` replays a failure.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tutti.errors import AlreadyClaimed, Delegated, Fenced, InvariantViolated, JournalUnfit, LeaseHeld, TuttiError
from tutti.journal import Proposal, Undecided, Unknown, deciding, keeping, outbox
from tutti.journal.records import Sent
from tutti.journal.rows import Rows
from tutti.journal.sqlite import SqliteSession, prepare
from tutti.model.status import TransactionStatus
from tutti.model.transaction import Decision, Outcome, TransactionRecord

MANAGERS = ["ada", "bob"]
LEASE = 5.0
STEPS = 250


@dataclass
class Known:
    manager: str
    epoch: int = 1
    outcome: Outcome | None = None
    delegated: bool = False
    finished: bool = False
    queued: bool = False
    sent: bool = True
    shrunk: bool = False


@dataclass
class Model:
    now: float = 1_000.0
    known: dict[str, Known] = field(default_factory=dict)
    forgotten: set[str] = field(default_factory=set)
    leases: dict[str, float] = field(default_factory=dict)
    claims: dict[str, str] = field(default_factory=dict)

    def fence(self, tx: str, epoch: int) -> type[TuttiError] | None:
        present = self.known[tx].epoch
        return Fenced if epoch < present else JournalUnfit if epoch > present else None


class World:
    """Each step is one database transaction, as a scribe would write it; a crash drops the connection."""

    def __init__(self, seed: int, path: Path) -> None:
        self.rng = random.Random(seed)
        self.model = Model()
        self.transactions = [f"j-{n}" for n in range(3)]
        prepare(path, self.clock, 1.0)
        self.session = SqliteSession(path, self.clock, 1.0)

    def run(self) -> None:
        steps: list[tuple[int, Callable[[], None]]] = [
            (4, self.time_passes), (4, self.register), (2, self.renew), (2, self.release), (6, self.take_over),
            (1, self.delegate), (6, self.decide), (4, self.finish), (3, self.relay), (1, self.shrink), (1, self.forget),
            (1, self.session.close),
        ]  # fmt: skip
        weights, calls = [weight for weight, _ in steps], [call for _, call in steps]
        for _ in range(STEPS):
            self.rng.choices(calls, weights)[0]()
            self.everything_stands()
        self.session.close()

    def clock(self) -> float:
        return self.model.now

    def write(self, call: Callable[..., Any], *arguments: object, crash: bool = False) -> object:
        """The answer or the error. With `crash`, the process dies before the commit: nothing happened."""
        self.session.begin()
        rows: Rows = self.session.rows
        try:
            answer: object = call(rows, *arguments)
        except TuttiError as error:
            self.session.rollback()
            return error
        if crash:
            self.session.close()
            return None
        self.session.commit()
        return answer

    def some_tx(self) -> str:
        return self.rng.choice(self.transactions)

    def some_epoch(self, tx: str) -> int:
        """Mostly the right one, sometimes an older or a newer."""
        present = self.model.known[tx].epoch if tx in self.model.known else 1
        return max(1, present + self.rng.choice([0, 0, 0, 0, -1, 1]))

    def rarely(self) -> bool:
        return self.rng.random() < 0.2

    def living(self, tx: str) -> Known | None:
        known = self.model.known.get(tx)
        return known if known is not None and not known.shrunk else None

    def time_passes(self) -> None:
        self.model.now += self.rng.choice([0.5, 3.0, LEASE])

    def register(self) -> None:
        tx, manager, crash = self.some_tx(), self.rng.choice(MANAGERS), self.rarely()
        if tx in self.model.known or tx in self.model.forgotten:
            return
        record = TransactionRecord(tx, "T", 0.0, manager, 1)
        assert self.write(deciding.register, record, LEASE, crash=crash) is None
        if not crash:
            self.model.known[tx] = Known(manager)
            self.extend(manager)

    def renew(self) -> None:
        manager = self.rng.choice(MANAGERS)
        until = self.write(deciding.renew, manager, LEASE)
        self.extend(manager)
        assert until == self.model.leases[manager]

    def extend(self, manager: str) -> None:
        self.model.leases[manager] = max(self.model.leases.get(manager, 0.0), self.model.now + LEASE)

    def release(self) -> None:
        manager = self.rng.choice(MANAGERS)
        self.write(deciding.release, manager)
        self.model.leases.pop(manager, None)

    def take_over(self) -> None:
        tx, manager = self.some_tx(), self.rng.choice(MANAGERS)
        expected = self.some_epoch(tx)
        known = self.living(tx)
        if known is None:
            return
        found = self.write(deciding.take_over, tx, expected, manager, LEASE)
        if (known.epoch, known.manager) == (expected + 1, manager):
            assert found == known.epoch
        elif known.epoch != expected:
            assert isinstance(found, Fenced)
        elif self.model.leases.get(known.manager, 0.0) > self.model.now:
            assert isinstance(found, LeaseHeld)
        else:
            assert found == expected + 1
            known.manager, known.epoch = manager, expected + 1
            self.extend(manager)

    def delegate(self) -> None:
        tx = self.some_tx()
        epoch = self.some_epoch(tx)
        known = self.living(tx)
        if known is None:
            return
        found = self.write(deciding.delegate, tx, epoch, "ledger")
        if (refusal := self.model.fence(tx, epoch)) is not None:
            assert isinstance(found, refusal)
        elif known.outcome is not None:
            assert isinstance(found, Decision)
        else:
            assert found is None
            known.delegated = True

    def decide(self) -> None:
        tx, crash = self.some_tx(), self.rarely()
        outcome: Outcome = self.rng.choice(["commit", "abort"])
        epoch, asked, claim = self.some_epoch(tx), self.rng.random() < 0.5, self.rng.random() < 0.5
        known = self.model.known.get(tx)
        if known is None:
            return
        claims = ("the-batch",) if claim and outcome == "commit" else ()
        status = TransactionStatus(tx, "committed" if outcome == "commit" else "aborted")
        proposal = Proposal(tx, outcome, epoch, claims=claims, status=status, read_from="ledger" if asked else "")
        found = self.write(deciding.decide, proposal, crash=crash)
        if known.shrunk:
            assert found is None or (isinstance(found, Decision) and found.outcome == known.outcome)
        elif (refusal := self.model.fence(tx, epoch)) is not None:
            assert isinstance(found, refusal)
        elif known.outcome is not None:
            assert found is None or (isinstance(found, Decision) and found.outcome == known.outcome)
        elif known.delegated and not asked:
            assert isinstance(found, Delegated)
        elif claims and "the-batch" in self.model.claims:
            assert isinstance(found, AlreadyClaimed)
            assert found.tx == self.model.claims["the-batch"]
        elif not crash:
            assert found == Decision(tx, outcome, epoch)
            known.outcome, known.queued, known.sent = outcome, True, False
            self.model.claims |= dict.fromkeys(claims, tx)

    def finish(self) -> None:
        tx = self.some_tx()
        epoch = self.some_epoch(tx)
        known = self.living(tx)
        if known is None:
            return
        found = self.write(deciding.finish, tx, epoch)
        if (refusal := self.model.fence(tx, epoch)) is not None:
            assert isinstance(found, refusal)
        elif known.outcome is None:
            assert isinstance(found, InvariantViolated)
        else:
            known.finished = True

    def relay(self) -> None:
        """The bus has taken them; the relay may die before it has marked them."""
        crash = self.rarely()
        waiting = self.write(outbox.unsent, 0, 100)
        assert isinstance(waiting, tuple)
        unsent = {tx for tx, known in self.model.known.items() if known.queued and not known.sent}
        assert {one.status.tx for one in waiting} == unsent
        self.write(outbox.mark_sent, [Sent(one.position, 7) for one in waiting], crash=crash)
        if not crash:
            for tx in unsent:
                self.model.known[tx].sent = True

    def shrink(self) -> None:
        self.model.now += 0.1
        ready = [k for k in self.model.known.values() if k.finished and k.sent and not k.shrunk]
        assert self.write(keeping.shrink, self.model.now) == len(ready)
        for known in ready:
            known.shrunk = True
        covered = {known.manager for known in self.model.known.values() if not known.shrunk}
        gone = {m for m, until in self.model.leases.items() if until <= self.model.now and m not in covered}
        for manager in gone:
            del self.model.leases[manager]

    def forget(self) -> None:
        self.model.now += 0.1
        old = {tx for tx, known in self.model.known.items() if known.shrunk}
        assert self.write(keeping.forget, self.model.now) == len(old)
        for tx in old:
            del self.model.known[tx]
        self.model.forgotten |= old
        self.transactions = [tx for tx in self.transactions if tx not in old] + [tx + "x" for tx in sorted(old)]
        self.model.claims = {claim: tx for claim, tx in self.model.claims.items() if tx not in old}

    def everything_stands(self) -> None:
        for tx in (*self.transactions, *self.model.forgotten):
            answer = self.write(deciding.answer, tx, "*")
            known = self.model.known.get(tx)
            match answer:
                case Decision():
                    assert known is not None
                    assert answer.outcome == known.outcome
                case Undecided():
                    assert known is not None
                    assert known.outcome is None
                    assert (answer.manager, answer.epoch) == (known.manager, known.epoch)
                    assert answer.lapsed == (self.model.leases.get(known.manager, 0.0) <= self.model.now)
                case _:
                    assert answer == Unknown(tx)
                    assert known is None


@pytest.mark.parametrize("seed", range(30))
def test_the_journal_does_what_its_model_says(seed: int, tmp_path: Path) -> None:
    World(seed, tmp_path / "journal.db").run()
