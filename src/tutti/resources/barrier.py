"""The barrier: one table beside the data that settles what may still happen.

A participant that commits its work at once, and undoes it if the transaction aborts, meets four disorders: the
compensation of work that never happened, the same compensation twice, the compensation before the work, and the work
after its compensation. One row with a unique key, written in the same database transaction as the data, settles all:

 1. The key is (owner, tx, branch, step, op). Inserting waits for whoever is inserting the same key, so of two
    transactions that disagree one comes first, and the other sees what it did.
 2. Work inserts (step, `work`) with the word `done`. If the row is there, its word says why: `done`, the work has
    happened; `void`, the compensation came first, so the work must not happen any more.
 3. A compensation inserts (step, `work`) with the word `void`. If that succeeds, there is nothing to undo, and never
    will be. Then it inserts (step, `undo`): if that row is there, it has been undone before.
 4. The last resource inserts (0, `outcome`) with the word `commit` in the transaction of its work. Recovery inserts the
    same key with `abort`. Whoever is first has decided, and the other one reads it.

Rows stay until `forget`: as long as anything of their transaction can come back.

The statements hold their values as literals. That is safe because owner, tx and branch have passed `gid_of`, steps are
whole numbers and bytes are written as hexadecimal digits; it lets every driver run the same text, several statements in
one message where it can.
"""

# ruff: noqa: S608  -- see above: no value can leave its literal

from __future__ import annotations

from typing import Final, Literal

import msgspec

from tutti.errors import InvariantViolated, invariant
from tutti.resources.gid import BranchId
from tutti.resources.port import Admission, Outcome

TABLE: Final = "tutti_barrier"
Op = Literal["work", "undo", "outcome"]


class Dialect(msgspec.Struct, frozen=True):
    """What differs between databases. `table`: the name, with its schema where there are schemas."""

    table: str
    blob_type: str
    blob_start: str  # before the hexadecimal digits
    blob_end: str
    now: str  # an expression: seconds since the epoch
    age: str = "min(written_at)"  # of a group of rows: what orders them by when the first was written


POSTGRES_BLOB: Final = ("bytea", "'\\x", "'::bytea")
SQLITE_BLOB: Final = ("blob", "x'", "'")


def create_table(dialect: Dialect) -> str:
    return (
        f"CREATE TABLE IF NOT EXISTS {dialect.table} ("
        f"owner text NOT NULL, tx text NOT NULL, branch text NOT NULL, step bigint NOT NULL, op text NOT NULL, "
        f"word text NOT NULL, entry {dialect.blob_type} NOT NULL, written_at double precision NOT NULL, "
        f"PRIMARY KEY (owner, tx, branch, step, op))"
    )


def insert(dialect: Dialect, branch: BranchId, step: int, op: Op, *, word: str, entry: bytes = b"") -> str:
    """Inserts nothing if the key is there. Waits for a transaction that has just inserted it."""
    invariant(isinstance(step, int), "a step is a whole number")
    key = f"'{branch.owner}', '{branch.tx}', '{branch.branch}', {step:d}, '{op}'"
    blob = f"{dialect.blob_start}{entry.hex()}{dialect.blob_end}"
    return f"INSERT INTO {dialect.table} VALUES ({key}, '{word}', {blob}, {dialect.now}) ON CONFLICT DO NOTHING"


def select_word(dialect: Dialect, branch: BranchId, step: int, op: Op) -> str:
    return f"SELECT word FROM {dialect.table} WHERE {_of(branch)} AND step = {step:d} AND op = '{op}'"


def select_completed(dialect: Dialect, branch: BranchId) -> str:
    undone = f"SELECT step FROM {dialect.table} WHERE {_of(branch)} AND op = 'undo'"
    return (
        f"SELECT step, entry FROM {dialect.table} WHERE {_of(branch)} AND op = 'work' AND word = 'done' "
        f"AND step NOT IN ({undone}) ORDER BY step"
    )


def select_unsettled(dialect: Dialect, owner: str) -> str:
    return (
        f"SELECT tx, branch FROM {dialect.table} WHERE owner = '{owner}' AND op = 'work' "
        f"GROUP BY tx, branch ORDER BY {dialect.age}, tx, branch"
    )


def delete(dialect: Dialect, branch: BranchId) -> str:
    return f"DELETE FROM {dialect.table} WHERE {_of(branch)}"


def admitted_work(*, inserted: bool, word: str | None) -> Admission:
    """Rule 2. `word` is that of the row that was there."""
    match inserted, word:
        case True, _:
            return Admission.RUN
        case False, "done":
            return Admission.REPEATED
        case False, "void":
            return Admission.LATE
        case _:
            raise InvariantViolated(f"a barrier row of work says {word!r}", hint="somebody else wrote to the barrier")


def admitted_undo(*, voided: bool, inserted: bool) -> Admission:
    """Rule 3. `voided`: the work had not happened; `inserted`: it had not been undone."""
    if voided:
        return Admission.EMPTY
    return Admission.RUN if inserted else Admission.REPEATED


def outcome_of(word: object) -> Outcome:
    match word:
        case "commit" | "abort":
            return word
        case _:
            raise InvariantViolated(f"an outcome marker says {word!r}", hint="somebody else wrote to the barrier")


def _of(branch: BranchId) -> str:
    return f"owner = '{branch.owner}' AND tx = '{branch.tx}' AND branch = '{branch.branch}'"
