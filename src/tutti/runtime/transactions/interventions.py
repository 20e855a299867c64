"""What an operator does about a transaction: abort it, resolve a branch in doubt, try a compensation again, forget.

1. Aborting is a decision like any other: one row, by the journal's compare-and-set, and then everybody is told.
2. Resolving finishes branches without a decision, and may turn out to contradict it. The word is written down first.
   The instance that acts for the participant carries it out; if there is none, its databases are reached from here.
   Nobody resolves against a decision that is known.
3. What was done by hand is shown until it is forgotten.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from tutti.errors import (
    DeclarationError,
    Delegated,
    Fenced,
    TransactionError,
    UnknownTransaction,
)
from tutti.journal import Answer, Heuristic, Journal, LogRow, ParticipantLog, Proposal, Resolution, Undecided, Unknown
from tutti.limits import OPERATOR_LEASE_SECONDS, OPERATOR_WAIT_SECONDS
from tutti.model.messages import Decide
from tutti.model.subjects import token
from tutti.model.transaction import Decision, Outcome, TransactionRecord, journal_of, member_hash
from tutti.resources import BranchId, Resource
from tutti.runtime.bus import Bus
from tutti.runtime.transactions.books import Books
from tutti.runtime.transactions.channel import pack, signed
from tutti.runtime.transactions.own import OWNER, own_branch
from tutti.runtime.transactions.trust import Trust

_LOOK_SECONDS: Final = 0.1  # how often it is looked whether an instance has carried out the word
_WORDS: Final[dict[Outcome, str]] = {"commit": "commit", "abort": "rollback"}
_TRIES: Final = 5  # to decide, while managers take over from each other


class Aborted(msgspec.Struct, frozen=True):
    """`told`: members and manager heard of it at once; else `why` not, and they learn it when they ask."""

    tx: str
    reason: str
    already: bool
    told: bool
    why: str = ""


class Branch(msgspec.Struct, frozen=True):
    """What became of one participant's branch, or of one of the publisher's own."""

    place: str
    outcome: Outcome
    done: bool
    how: str


class Operator:
    """`by`: who it is, for the record. `bus`: None if no server can be reached. `resources`: what is reached from here,
    by name."""

    def __init__(self, books: Books, *, by: str, bus: Bus | None, resources: Sequence[Resource[Any]] = ()) -> None:
        self._books = books
        self._by = by
        self._bus = bus
        self._resources: Mapping[str, Resource[Any]] = {resource.name: resource for resource in resources}

    # Aborting

    async def abort(self, tx: str, reason: str) -> Aborted:
        """When this returns, the row stands. `TransactionError` if the transaction is committed."""
        journal = self._journal(tx)
        before = await self._known(journal, tx)
        stands = before if isinstance(before, Decision) else await self._decide_abort(journal, tx, reason)
        if stands.outcome == "commit":
            raise TransactionError(
                f"{tx} is committed: nobody can abort it any more",
                hint="publish what undoes it, in another transaction",
            )
        dossier = await journal.show(tx)
        why = "it ended long ago"
        if dossier is not None:
            why = await self._announce(dossier.entry.record, stands)
        return Aborted(tx, stands.reason, isinstance(before, Decision), not why, why)

    async def _known(self, journal: Journal, tx: str) -> Decision | Undecided:
        known: Answer = await journal.decision(tx)
        if isinstance(known, Unknown):
            raise UnknownTransaction(
                f"the journal {journal.id} does not know {tx}, or no longer",
                hint="it never began (its census failed), or is long over; `tutti tx ls --all` lists what is known",
            )
        return known

    async def _decide_abort(self, journal: Journal, tx: str, reason: str) -> Decision:
        said = f"an operator ({self._by}): {reason}" if reason else f"an operator ({self._by})"
        for _ in range(_TRIES):
            known = await self._known(journal, tx)
            if isinstance(known, Decision):
                return known
            read_from = known.delegated_to
            outcome: Outcome = "abort"
            if read_from:
                outcome = await self._last_resource(tx, read_from).settle_last(own_branch(tx, read_from))
            proposal = Proposal(
                tx, outcome, known.epoch, reason=said if outcome == "abort" else "", read_from=read_from
            )
            with contextlib.suppress(Fenced, Delegated):  # in between: look again
                return await journal.decide(proposal)
        raise TransactionError(f"the managers of {tx} take over from each other", hint="try again in a moment")

    def _last_resource(self, tx: str, name: str) -> Resource[Any]:
        if name not in self._resources:
            raise TransactionError(
                f"{tx} is being decided by {name}, the publisher's last resource: only there it can be seen how",
                hint=f"name it: --resources module:{name}; or wait for its publisher, or a successor that knows {name}",
            )
        return self._resources[name]

    async def _announce(self, record: TransactionRecord, stands: Decision) -> str:
        """Why it was not, or nothing."""
        if self._bus is None:
            return "no server can be reached: members learn it when they ask"
        key, context = self._books.key, self._bus.context
        trusted = await Trust(context.transport, context.trusted).load()
        if key is None or key.public != trusted:
            return "the key of the journal is not here: members learn it when they ask"
        layout = context.layout
        decide = Decide(record.tx, stands.epoch, stands.outcome, stands.branch, stands.reason, stands.excluded)
        packet = pack([signed(decide, key, manager=True)])
        members = (
            layout.group(record.group, record.tx) if record.group else layout.members(token(record.type), record.tx)
        )
        for subject in (layout.manager(record.tx), members):
            context.transport.emit(subject, {}, packet)
        await context.transport.state_get("journal")  # answered behind what was emitted: so that has left
        return ""

    # Resolving

    async def resolve(self, tx: str, outcome: Outcome, subscriber: str = "") -> list[Branch]:
        """Finish what is in doubt here. `TransactionError` if nothing is, or if it would contradict the decision."""
        journal = self._books.journal_for(tx)
        known = await journal.decision(tx) if journal is not None else None
        rows = await self._books.log.rows_of(tx) if self._books.log is not None else ()
        chosen = [row for row in rows if not subscriber or row.subscriber == subscriber]
        in_doubt = [row for row in chosen if row.record.state == "voted"]
        for row in in_doubt:
            self._refuse_contradiction(known, row, outcome)
        branches = [await self._resolve_row(row, outcome, known) for row in in_doubt]
        if not subscriber:
            branches += await self._resolve_own(tx, outcome, known)
        if not branches:
            raise self._nothing_in_doubt(tx, chosen, subscriber)
        return branches

    def _refuse_contradiction(self, known: Answer | None, row: LogRow, outcome: Outcome) -> None:
        if not isinstance(known, Decision):
            return
        decided = known.outcome_for(member_hash(row.tx, row.record.pseudonym))
        if decided != outcome:
            raise TransactionError(
                f"{row.tx} is decided, and for {row.subscriber} that is {decided}",
                hint=f"`tutti tx resolve {row.tx} {_WORDS[decided]}` finishes its branch",
            )

    def _nothing_in_doubt(self, tx: str, rows: Sequence[LogRow], subscriber: str) -> TransactionError:
        where = f"of {subscriber} " if subscriber else ""
        if rows:
            states = ", ".join(f"{row.subscriber}: {row.record.state}" for row in rows)
            return TransactionError(
                f"nothing {where}is in doubt in {tx} ({states})",
                hint="only who voted yes and does not know the decision is; others end by themselves",
            )
        hint = f"`tutti tx show {tx}` tells what is known; participants are resolved on the host that has their log"
        if self._books.log is None:
            return TransactionError(f"there is no participants' log in {self._books.place}", hint=hint)
        return TransactionError(f"no participant {where}with a log here has voted in {tx}", hint=hint)

    async def _resolve_row(self, row: LogRow, outcome: Outcome, known: Answer | None) -> Branch:
        log = self._log()
        word = await log.resolve(row.subscriber, row.tx, outcome, self._by)
        if word.outcome != outcome:
            raise TransactionError(
                f"{row.subscriber} in {row.tx} was resolved to {word.outcome} before, by {word.by or 'somebody'}",
                hint=f"it cannot be changed; `tutti tx forget {row.tx}` once it is settled",
            )
        if word.carried_out_at:
            return Branch(row.subscriber, outcome, done=True, how="it was finished before")
        if not isinstance(known, Decision):
            await self._record(row.tx, member_hash(row.tx, row.record.pseudonym), outcome, row.subscriber)
        if row.instance in await log.living():
            return await self._wait(row, outcome)
        return await self._finish_here(row, outcome)

    async def _record(self, tx: str, place: str, outcome: Outcome, name: str) -> None:
        """In the journal, if it is here."""
        journal = self._books.journal_for(tx)
        if journal is not None:
            detail = f"{name} was finished while it was in doubt"
            await journal.record_heuristic(Heuristic(tx, place, outcome, detail, self._by))

    async def _wait(self, row: LogRow, outcome: Outcome) -> Branch:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(OPERATOR_WAIT_SECONDS):
                while not (await self._word(row)).carried_out_at:
                    found = await self._log().find(row.subscriber, row.tx)
                    if found is not None and found.record.state in {"committed", "aborted"}:
                        how = f"{row.subscriber} had learnt the decision: {found.record.state}"
                        return Branch(row.subscriber, outcome, done=True, how=how)
                    await asyncio.sleep(_LOOK_SECONDS)
                return Branch(row.subscriber, outcome, done=True, how=f"{row.instance} has finished it")
        how = f"{row.instance} has not answered; it does so as soon as it can, or whoever takes its place"
        return Branch(row.subscriber, outcome, done=False, how=how)

    async def _word(self, row: LogRow) -> Resolution:
        words = await self._log().resolutions(row.subscriber)
        return next((word for word in words if word.tx == row.tx), Resolution(row.subscriber, row.tx, "abort"))

    async def _finish_here(self, row: LogRow, outcome: Outcome) -> Branch:
        """Nobody acts for it: for a moment, this process does."""
        log, name = self._log(), row.subscriber
        if row.record.compensatable and outcome == "abort":
            how = f"its compensators are in its code: `tutti run` the subscriber {name}, and it undoes its work"
            return Branch(name, outcome, done=False, how=how)
        instance = f"operator-{secrets.token_hex(6)}"
        await log.beat(instance, seconds=OPERATOR_LEASE_SECONDS)
        try:
            taken = await log.take_over(name, instance, tx=row.tx)
            if not taken:
                return await self._wait(row, outcome)
            [mine] = taken
            found = await self._prepared(name, row.tx)
            missing = _missing(mine, found, self._resources)
            if missing:
                how = (
                    f"nobody acts for {name}, and {', '.join(missing)} is not reached from here: name it with "
                    f"--resources, or start {name}, which then does it"
                )
                return Branch(name, outcome, done=False, how=how)
            await log.write(msgspec.structs.replace(mine, heuristic=outcome))
            await self._finish(found, outcome)
            await log.carried_out(name, row.tx)
        finally:
            await log.release(instance)
        how = "finished from here: nobody acts for it"
        return Branch(name, outcome, done=True, how=how)

    async def _prepared(self, owner: str, tx: str) -> list[tuple[Resource[Any], BranchId]]:
        return [
            (resource, doubt.branch)
            for resource in self._resources.values()
            if resource.prepares
            for doubt in await resource.recover(owner)
            if doubt.branch.tx == tx
        ]

    async def _finish(self, found: Sequence[tuple[Resource[Any], BranchId]], outcome: Outcome) -> None:
        for resource, branch in found:
            if outcome == "commit":
                await resource.commit(branch, decided=True)  # it was there a moment ago
            else:
                await resource.rollback(branch, decided=True)

    async def _resolve_own(self, tx: str, outcome: Outcome, known: Answer | None) -> list[Branch]:
        """The publisher's own branches, in databases that are reached from here."""
        found = await self._prepared(OWNER, tx)
        if not found:
            return []
        if isinstance(known, Decision) and known.outcome != outcome:
            raise TransactionError(
                f"{tx} is decided: {known.outcome}",
                hint=f"its publisher, or a successor, finishes so; `tutti tx show {tx}`",
            )
        if isinstance(known, Undecided) and not known.lapsed:
            raise TransactionError(
                f"the manager of {tx} lives: its publisher's branches are not in doubt",
                hint=f"`tutti tx abort {tx}` ends it everywhere; --subscriber NAME resolves one participant alone",
            )
        for resource, _ in found:
            if not isinstance(known, Decision):
                await self._record(tx, f"{OWNER}/{resource.name}", outcome, f"the publisher's {resource.name}")
        await self._finish(found, outcome)
        return [
            Branch(f"{OWNER}/{resource.name}", outcome, done=True, how="finished from here") for resource, _ in found
        ]

    # Forgetting, and trying again

    async def forget(self, tx: str, *, force: bool = False) -> list[str]:
        """The places of which it is no longer shown that they were finished by hand. `force`: although the decision is
        not known yet; then nobody compares it any more."""
        journal, log = self._books.journal_for(tx), self._books.log
        words = [word for word in await log.resolutions() if word.tx == tx] if log is not None else []
        known = await journal.decision(tx) if journal is not None else None
        for word in words:
            await self._settle(word, known=force or isinstance(known, Decision))
        places = {word.subscriber for word in words}
        rows = await log.rows_of(tx) if log is not None else ()
        names = {member_hash(tx, row.record.pseudonym): row.subscriber for row in rows}
        dossier = await journal.show(tx) if journal is not None else None
        if journal is not None and dossier is not None:
            places |= {names.get(one.place, one.place) for one in dossier.heuristics}
            await journal.forget_heuristic(tx)
        if not places:
            raise TransactionError(
                f"nothing was finished by hand in {tx}", hint="`tutti tx ls` shows what was, under `by hand`"
            )
        return sorted(places)

    async def _settle(self, word: Resolution, *, known: bool) -> None:
        """`known`: the decision, to us; what contradicts it was shown."""
        log = self._log()
        row = await log.find(word.subscriber, word.tx)
        opened = row is not None and row.record.state not in {"committed", "aborted"}
        if row is not None and opened and word.carried_out_at:
            if not known:
                raise TransactionError(
                    f"{word.subscriber} does not know the decision on {word.tx} yet, with which its branch"
                    f" ({word.outcome}) is to be compared",
                    hint="it asks while it runs; if the journal is gone for good, say --force",
                )
            state: Literal["committed", "aborted"] = "committed" if word.outcome == "commit" else "aborted"
            await log.close_row(word.subscriber, word.tx, msgspec.structs.replace(row.record, state=state))
        await log.withdraw(word.subscriber, word.tx)

    async def retry(self, tx: str, subscriber: str = "") -> list[str]:
        """Compensations that were given up are tried again. Returns by whom."""
        log = self._log()
        parked = [p for p in await log.parked(subscriber) if p.tx == tx]
        if not parked:
            whose = f"of {subscriber} " if subscriber else ""
            raise TransactionError(
                f"no compensation {whose}waits in {tx}", hint="`tutti tx ls --state compensating` shows where one does"
            )
        for one in parked:
            await log.unpark(one.subscriber, tx, one.event)
        return sorted({one.subscriber for one in parked})

    # Leaves

    def _journal(self, tx: str) -> Journal:
        journal = self._books.journal_for(tx)
        if journal is None:
            here = self._books.journal.id if self._books.journal is not None else "none"
            raise DeclarationError(
                f"{tx} is decided by the journal {journal_of(tx)}; the one in {self._books.place} is {here}",
                hint="name its folder, or postgresql://…, with --journal or TUTTI_JOURNAL",
            )
        return journal

    def _log(self) -> ParticipantLog:
        if self._books.log is None:
            raise DeclarationError(
                f"there is no participants' log in {self._books.place}",
                hint="work on the host of the subscriber, or name its folder with --journal",
            )
        return self._books.log


def _missing(
    row: LogRow, found: Sequence[tuple[Resource[Any], BranchId]], resources: Mapping[str, Resource[Any]]
) -> list[str]:
    """Resources in which a branch is prepared, as the row says, and that nobody can look into from here."""
    there = {branch.branch for _, branch in found}
    if row.record.compensatable:
        return []  # committed with the vote
    names = [descriptor.partition(" ") for descriptor in row.resources]
    return [name for name, _, suffix in names if f"{name}-{suffix}" not in there and name not in resources]
