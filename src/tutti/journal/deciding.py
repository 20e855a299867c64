"""The statements of a transaction's life: register, enlist, delegate, decide, end; and who may act for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from tutti.errors import (
    AlreadyClaimed,
    AlreadyRegistered,
    Delegated,
    Fenced,
    JournalUnfit,
    LeaseHeld,
    UnknownTransaction,
    invariant,
)
from tutti.journal.outbox import put_status
from tutti.journal.records import Answer, Proposal, QueuedStatus, Undecided, Unknown
from tutti.journal.rows import Row, Rows
from tutti.limits import JOURNAL_REASON_MAX_CHARACTERS
from tutti.model.messages import Ended
from tutti.model.status import TransactionStatus
from tutti.model.transaction import WHOLE, Decision, Outcome, TransactionRecord

_names: Final = msgspec.json.Decoder(tuple[str, ...])


class Head(NamedTuple):
    """The row of a transaction; who has it locked acts alone."""

    manager: str
    epoch: int
    deadline: float
    delegated_to: str
    record: str


def head(rows: Rows, tx: str, *, lock: bool) -> Head | None:
    statement = "SELECT manager, epoch, deadline, delegated_to, record FROM transactions WHERE tx = ?"
    found = rows.one(statement + (rows.lock if lock else ""), tx)
    return None if found is None else Head(*found)


def held_by(rows: Rows, tx: str, epoch: int) -> Head:
    """Lock the transaction, for the manager of this epoch and nobody before it."""
    found = head(rows, tx, lock=True)
    if found is None:
        raise unknown(tx)
    check_epoch(found, tx, epoch)
    return found


def check_epoch(found: Head, tx: str, epoch: int) -> None:
    if epoch < found.epoch:
        raise Fenced(
            f"{tx} was taken over by {found.manager} (epoch {found.epoch}); this is epoch {epoch}",
            epoch=found.epoch,
            hint="stop acting for it; `decision` tells what its successor decided",
        )
    if epoch > found.epoch:
        raise JournalUnfit(
            f"the journal knows {tx} in epoch {found.epoch}, before {epoch} in which its manager acts: it went back",
            hint="an old copy was restored? bring back the newest, or resolve its transactions by hand",
        )


def unknown(tx: str) -> UnknownTransaction:
    return UnknownTransaction(
        f"the journal does not know {tx}, or no longer: that says nothing about its outcome",
        hint="if a branch of it is still prepared, ask whoever began it, then `tutti tx resolve`",
    )


# Managers


def renew(rows: Rows, manager: str, seconds: float) -> float:
    statement = (
        "INSERT INTO leases (manager, until) VALUES (?, ?) ON CONFLICT (manager) DO UPDATE"
        " SET until = CASE WHEN leases.until > excluded.until THEN leases.until ELSE excluded.until END"
    )
    rows.run(statement, manager, rows.now + seconds)
    return lease_until(rows, manager)


def release(rows: Rows, manager: str) -> None:
    rows.run("DELETE FROM leases WHERE manager = ?", manager)


def lease_until(rows: Rows, manager: str) -> float:
    found = rows.one("SELECT until FROM leases WHERE manager = ?", manager)
    return 0.0 if found is None else float(found[0])


def take_over(rows: Rows, tx: str, expected: int, manager: str, seconds: float) -> int:
    found = head(rows, tx, lock=True)
    if found is None:
        raise unknown(tx)
    if (found.epoch, found.manager) == (expected + 1, manager):
        return found.epoch  # the answer to the first call was lost
    if found.epoch != expected:
        raise Fenced(
            f"{tx} is in epoch {found.epoch}, not {expected}: {found.manager} was faster",
            epoch=found.epoch,
            hint="leave it to that one, as long as its lease lives",
        )
    until = lease_until(rows, found.manager)
    if until > rows.now:
        raise LeaseHeld(
            f"{found.manager}, the manager of {tx}, lives for at least {until - rows.now:.1f} s more",
            manager=found.manager,
            seconds=until - rows.now,
            hint="try again then; it may have renewed its lease",
        )
    rows.run("UPDATE transactions SET manager = ?, epoch = ? WHERE tx = ?", manager, expected + 1, tx)
    renew(rows, manager, seconds)
    return expected + 1


# A transaction's life


def register(rows: Rows, record: TransactionRecord, lease: float) -> None:
    invariant(record.epoch >= 1, f"epochs are counted from 1: {record.tx} has {record.epoch}")
    invariant(set(record.vital) <= set(record.members), f"vital of {record.tx} names somebody who is no member")
    text = msgspec.json.encode(record).decode()
    inserted = rows.run(
        "INSERT INTO transactions (tx, manager, epoch, deadline, registered_at, record) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (tx) DO NOTHING",
        *(record.tx, record.manager, record.epoch, record.deadline, rows.now, text),
    )
    if not inserted:
        found = head(rows, record.tx, lock=False)
        if found is None or found.record != text:
            raise AlreadyRegistered(
                f"{record.tx} is registered already, as something else", hint="every transaction needs an id of its own"
            )
        return
    if rows.one("SELECT 1 FROM outcomes WHERE tx = ?", record.tx) is not None:
        raise AlreadyRegistered(f"{record.tx} was decided long ago", hint="every transaction needs an id of its own")
    for resource in record.resources:
        put_resource(rows, record.tx, resource)
    renew(rows, record.manager, lease)


def enlist(rows: Rows, tx: str, epoch: int, resource: str) -> None:
    held_by(rows, tx, epoch)
    put_resource(rows, tx, resource)


def put_resource(rows: Rows, tx: str, resource: str) -> None:
    rows.run(
        "INSERT INTO resources (tx, place, descriptor)"
        " VALUES (?, (SELECT COUNT(*) FROM resources WHERE tx = ?), ?) ON CONFLICT DO NOTHING",
        *(tx, tx, resource),
    )


def delegate(rows: Rows, tx: str, epoch: int, resource: str) -> Decision | None:
    found = held_by(rows, tx, epoch)
    if (standing := own_decision(rows, tx, WHOLE)) is not None:
        return standing
    if found.delegated_to not in {"", resource}:
        raise Delegated(
            f"{tx} is delegated to {found.delegated_to} already, so not to {resource}",
            resource=found.delegated_to,
            hint="one resource can be the last; use one that prepares, or compensation, for the others",
        )
    rows.run("UPDATE transactions SET delegated_to = ? WHERE tx = ?", resource, tx)
    return None


def decide(rows: Rows, proposal: Proposal) -> Decision:
    """The compare-and-set. What is found under the lock stands; what is not found is written with all that belongs to
    it, or not at all."""
    tx, branch = proposal.tx, proposal.branch
    invariant(proposal.outcome == "commit" or not proposal.claims, f"an abort of {tx} claims nothing")
    found = head(rows, tx, lock=True)
    if found is None:
        return _shrunk(rows, tx, branch)
    check_epoch(found, tx, proposal.epoch)
    if (standing := decision_for(rows, tx, branch)) is not None:
        return standing
    if found.delegated_to and proposal.read_from != found.delegated_to:
        raise Delegated(
            f"the outcome of {tx} stands in {found.delegated_to}, and was not read there",
            resource=found.delegated_to,
            hint="read its marker, or insert the marker of an abort, and record that",
        )
    for claim in proposal.claims:
        _claim(rows, claim, tx)
    decision = Decision(
        tx, proposal.outcome, proposal.epoch, branch, proposal.reason[:JOURNAL_REASON_MAX_CHARACTERS], proposal.excluded
    )
    rows.run(
        "INSERT INTO decisions (tx, branch, outcome, epoch, reason, excluded, decided_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
        *(tx, branch, decision.outcome, decision.epoch, decision.reason),
        *(msgspec.json.encode(decision.excluded).decode(), rows.now),
    )
    if proposal.status is not None:
        put_status(rows, proposal.status, decision.outcome if branch == WHOLE else None)
    return decision


def _shrunk(rows: Rows, tx: str, branch: str) -> Decision:
    left = old_outcome(rows, tx, branch)
    if left is None:
        raise unknown(tx)
    return left


def _claim(rows: Rows, claim: str, tx: str) -> None:
    if rows.run("INSERT INTO claims (claim, tx) VALUES (?, ?) ON CONFLICT DO NOTHING", claim, tx):
        return
    owner = rows.one("SELECT tx FROM claims WHERE claim = ?", claim)
    invariant(owner is not None, f"the claim {claim!r} is neither free nor taken")
    raise AlreadyClaimed(
        f"{claim!r} was committed by {owner[0] if owner else ''} already, so not by {tx}",
        key=claim,
        tx=owner[0] if owner else "",
        hint="what this transaction should do is done: abort it",
    )


def ended(rows: Rows, reports: Sequence[Ended]) -> None:
    for report in reports:
        rows.run(
            "INSERT INTO ended (tx, member, outcome, state) SELECT t.tx, ?, ?, ? FROM transactions t WHERE t.tx = ?"
            " ON CONFLICT (tx, member) DO UPDATE SET outcome = excluded.outcome, state = excluded.state"
            " WHERE ended.state = 'compensating'",
            *(report.member, report.outcome, report.state, report.tx),
        )
        if report.state == "heuristic":
            rows.run(
                "INSERT INTO heuristics (tx, place, taken, detail, taken_by, recorded_at) SELECT t.tx, ?, ?, ?, ?, ?"
                " FROM transactions t WHERE t.tx = ? ON CONFLICT DO NOTHING",
                *(report.member, report.outcome, "reported by the member, against the decision", "", rows.now),
                report.tx,
            )


def finish(rows: Rows, tx: str, epoch: int) -> None:
    found = head(rows, tx, lock=True)
    if found is None:
        _shrunk(rows, tx, WHOLE)
        return
    check_epoch(found, tx, epoch)
    invariant(own_decision(rows, tx, WHOLE) is not None, f"{tx} is not decided, so it cannot be finished")
    rows.run("UPDATE transactions SET finished_at = ? WHERE tx = ? AND finished_at IS NULL", rows.now, tx)


def queue_status(rows: Rows, status: TransactionStatus, epoch: int) -> QueuedStatus:
    held_by(rows, status.tx, epoch)
    standing = own_decision(rows, status.tx, WHOLE)
    return put_status(rows, status, None if standing is None else standing.outcome)


# What stands


def answer(rows: Rows, tx: str, branch: str) -> Answer:
    found = head(rows, tx, lock=False)
    if found is None:
        return old_outcome(rows, tx, branch) or Unknown(tx)
    return decision_for(rows, tx, branch) or Undecided(
        tx=tx,
        manager=found.manager,
        epoch=found.epoch,
        lease_until=lease_until(rows, found.manager),
        deadline=found.deadline,
        now=rows.now,
        delegated_to=found.delegated_to,
    )


def decision_for(rows: Rows, tx: str, branch: str) -> Decision | None:
    """The branch's own decision, else that of the whole, which covers every branch that was left."""
    own = own_decision(rows, tx, branch)
    return own if own is not None or branch == WHOLE else own_decision(rows, tx, WHOLE)


DECISION: Final = "SELECT tx, branch, outcome, epoch, reason, excluded FROM decisions"


def own_decision(rows: Rows, tx: str, branch: str) -> Decision | None:
    found = rows.one(DECISION + " WHERE tx = ? AND branch = ?", tx, branch)
    return None if found is None else read_decision(found)


def read_decision(row: Row) -> Decision:
    tx, branch, outcome, epoch, reason, excluded = row
    return Decision(tx, read_outcome(outcome), epoch, branch, reason, _names.decode(excluded))


def old_outcome(rows: Rows, tx: str, branch: str) -> Decision | None:
    """What is left of a decision that has shrunk."""
    found: dict[str, str] = dict(
        rows.all("SELECT branch, outcome FROM outcomes WHERE tx = ? AND branch IN (?, ?)", tx, branch, WHOLE)
    )
    if not found:
        return None
    nearest = branch if branch in found else WHOLE
    return Decision(tx, read_outcome(found[nearest]), epoch=0, branch=nearest, reason="")


def read_outcome(text: str) -> Outcome:
    """Checked after it was read: a damaged row is never taken for one or the other."""
    if text == "commit":
        return "commit"
    if text == "abort":
        return "abort"
    raise JournalUnfit(f"a decision in the journal reads {text!r}", hint="the file is damaged: restore it")
