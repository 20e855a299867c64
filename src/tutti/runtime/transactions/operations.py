"""What a participation does to its resources and its log: one operation after another, each answered before the next.

Rolling back ends a handler that is still at work; that is answered too. How work is committed at once, and undone, is
in `undoing.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, assert_never

from tutti.control.participation import messages as p
from tutti.errors import Fenced, JournalError, ResourceError
from tutti.flow.dispatcher.life import pause
from tutti.flow.matcher import Seen
from tutti.journal import LogRow
from tutti.limits import CLOSE_LOG_ATTEMPTS_COUNT, FINISH_RETRY_SECONDS
from tutti.model import attributes
from tutti.model.transaction import Consumed, Outcome, ParticipantRecord
from tutti.resources import BranchId
from tutti.runtime.publisher import trace
from tutti.runtime.subscriber import Subscription
from tutti.runtime.transactions.bench import HandlerBench
from tutti.runtime.transactions.events import Heard, opened
from tutti.runtime.transactions.sessions import Session, restored
from tutti.runtime.transactions.site import Site, said
from tutti.runtime.transactions.undoing import Kept, Undoing, decode_kept, encode_kept

if TYPE_CHECKING:
    from tutti.runtime.transactions.taking import Taking

log = logging.getLogger("tutti.transactions")

Operation = (
    p.Handle
    | p.PrepareResources
    | p.CommitWork
    | p.WriteLog
    | p.CommitResources
    | p.RollbackResources
    | p.RunCompensator
    | p.CloseLog
    | p.RecordHeuristic
    | p.Park
)


class Operations:
    """Of one participation. `heard` are events that came and are not handled yet."""

    def __init__(self, site: Site, taking: Taking) -> None:
        self._site, self._taking = site, taking
        self._queue: deque[Operation] = deque()
        self._task: asyncio.Task[None] | None = None
        self._handling: asyncio.Task[None] | None = None
        self._sessions: dict[int, dict[str, Session]] = {}  # by round, then by suffix
        self._in_log = False  # a row of ours is, or may be, in the participants' log
        self._heuristic: Outcome | None = None  # as an operator wanted it
        self._contradicted: Outcome | None = None  # by the decision
        self._told_operator = False
        self._undoing = Undoing(site, taking)
        self.heard: dict[tuple[str, str, int], Heard] = {}
        self.kept: dict[Consumed, Kept] = {}  # what was handled, if it may have to be compensated

    @property
    def idle(self) -> bool:
        return self._task is None

    def enqueue(self, operation: Operation) -> None:
        if isinstance(operation, p.RollbackResources) and self._handling is not None:
            self._handling.cancel()
        self._queue.append(operation)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._drain())
            self._task.add_done_callback(self._ended)

    def restore(self, row: LogRow) -> tuple[str, ...]:
        """From the log of an earlier process. Returns the names of resources that are needed and not declared."""
        self._in_log = True
        self._heuristic = row.heuristic
        sessions, missing = restored(row.subscriber, row.tx, row.resources, self._site.parts.resources)
        for suffix, session in sessions.items():
            session.committed = row.record.compensatable  # such a row lists only what was decided
            self._sessions.setdefault(int(suffix.partition("-")[0]), {})[suffix] = session
        self.kept = {kept.event: kept for kept in map(decode_kept, row.events)}
        homes = [k.home for k in self.kept.values() if k.home and k.home not in self._site.parts.resources]
        return tuple(dict.fromkeys((*missing, *homes)))

    async def settled(self) -> None:
        """What was asked for is done."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def close(self) -> None:
        """The process stops. What is prepared or committed stays; the rest is rolled back."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for session in self._all_sessions():
            if not session.prepared:
                with contextlib.suppress(ResourceError):
                    await session.roll_back()

    def _all_sessions(self) -> list[Session]:
        return [session for sessions in self._sessions.values() for session in sessions.values()]

    def _of_rounds(self, rounds: tuple[int, ...]) -> list[Session]:
        return [session for number in rounds for session in self._sessions.get(number, {}).values()]

    # One after another

    async def _drain(self) -> None:
        while self._queue:
            answer = await self._perform(self._queue.popleft())
            if answer is not None:
                self._taking.take(answer)
            await self._tell_operator()
        self._task = None

    def _ended(self, task: asyncio.Task[None]) -> None:
        if self._task is task:
            self._task = None
        if not task.cancelled() and task.exception() is not None:
            self._site.context.failed(task)

    async def _perform(self, operation: Operation) -> p.Input | None:
        match operation:
            case p.Handle():
                return await self._handle(operation)
            case p.PrepareResources():
                return await self._prepare(operation)
            case p.CommitWork():
                return await self._commit_work(operation)
            case p.WriteLog():
                return await self._write(operation.record)
            case p.CommitResources():
                return await self._finish("commit", operation.rounds)
            case p.RollbackResources():
                return await self._finish("abort", operation.rounds)
            case p.RunCompensator():
                return await self._compensate(operation)
            case p.CloseLog():
                await self._close_log(operation.record)
                return None
            case p.RecordHeuristic():
                await self._record_heuristic(operation)
                return None
            case p.Park():
                await self._park(operation)
                return None
            case _:
                assert_never(operation)

    # Handlers

    async def _handle(self, handle: p.Handle) -> p.Input:
        step = len(self.kept) + 1
        suffix = f"{handle.round}-{step}" if handle.commit else str(handle.round)
        sessions = self._sessions.setdefault(handle.round, {})
        session = sessions.setdefault(suffix, Session(self._site.subscriber, self._taking.tx, suffix))
        heard = self.heard.get((handle.event.publisher, handle.event.type, handle.event.number))
        if heard is None:
            return p.HandlerFailed(handle.event, "its data are not here", self._site.now)
        if self._taking.part.compensatable:
            envelope = heard.envelope
            self.kept[handle.event] = Kept(handle.event, step, suffix, "", envelope.attributes(), envelope.data)
        failure = await self._call(handle.event, heard, session)
        if not failure and handle.commit:
            failure = await self._commit_event(handle, session)
        if failure:
            return p.HandlerFailed(handle.event, failure, self._site.now)
        self.heard.pop((handle.event.publisher, handle.event.type, handle.event.number), None)
        return p.Handled(handle.event, self._site.now)

    async def _call(self, event: Consumed, heard: Heard, session: Session) -> str:
        """Every handler of the event, in a task of its own that a rollback can end. Why it failed, or nothing."""
        bench = HandlerBench(self._site, self._taking, session)
        task = asyncio.get_running_loop().create_task(self._run_handlers(event, heard, bench, session))
        self._handling = task
        try:
            await asyncio.wait([task])
        finally:
            self._handling = None
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if task.cancelled():
            return "the handler was ended"
        error = task.exception()
        if error is not None:
            return said(error)
        return await bench.failure()

    async def _run_handlers(self, event: Consumed, heard: Heard, bench: HandlerBench, session: Session) -> None:
        extensions = heard.envelope.extensions
        trace.set((extensions.get(attributes.TRACEPARENT, ""), extensions.get(attributes.TRACESTATE, "")))
        for subscription in self._site.parts.handlers[event.type]:
            value: Any = opened(heard, subscription.published, self._taking.payload_key)
            if subscription.via is not None:
                value = subscription.via.apply(value)
            matcher = self._site.matcher(subscription)
            if not matcher.open and matcher.match(Seen(value, heard.envelope.attributes())) is None:
                continue
            await self._attempt(subscription, value, bench, session, heard.involvement.attempts)

    async def _attempt(
        self, subscription: Subscription, value: object, bench: HandlerBench, session: Session, attempts: int
    ) -> None:
        """One handler: once, unless the publisher allows more. What a failed attempt did to resources is undone; one
        that has published is the last."""

        async def call() -> None:
            branch = self._taking.branch(bench)
            await self._site.call(subscription.function, subscription, subscription.name, value, branch)

        for attempt in range(1, attempts):
            try:
                async with session.attempt():
                    return await call()
            except Exception as error:
                if bench.published:
                    raise
                log.info("%s: %s: attempt %d failed: %s", self._site.subscriber, self._taking.tx, attempt, error)
            await asyncio.sleep(pause(subscription.policy.backoff, attempt, 0.0))
        await call()
        return None

    async def _commit_event(self, handle: p.Handle, session: Session) -> str:
        """Early: at once, before it counts as handled."""
        kept = self._settle_home(handle.event, session)
        record = self._taking.early_record((*self._taking.committed_early, handle.event))
        try:
            await self._undoing.commit(session, {kept.step: b""}, lambda: self._row(record, session))
        except Fenced:
            self._taking.fenced()
            return "another instance acts for this subscriber now"
        except Exception as error:  # noqa: BLE001  whatever a driver raises: certain that nothing was committed
            return said(error)
        self._in_log = self._in_log or len(session.names) != 1
        self._taking.last_record = record
        self._taking.committed_early.append(handle.event)
        return ""

    def _settle_home(self, event: Consumed, session: Session) -> Kept:
        """Where its barrier row will be."""
        kept = self.kept[event].at(session.home)
        self.kept[event] = kept
        return kept

    # Voting

    async def _prepare(self, operation: p.PrepareResources) -> p.Input:
        try:
            for session in self._of_rounds((operation.round,)):
                await session.prepare()
        except Exception as error:  # noqa: BLE001  whatever a driver raises: what was prepared is rolled back next
            return p.PrepareFailed(operation.round, said(error), self._site.now)
        return p.Prepared(operation.round, self._site.now)

    async def _commit_work(self, operation: p.CommitWork) -> p.Input:
        suffix = str(operation.round)
        session = self._sessions.get(operation.round, {}).get(suffix)
        if session is None or session.committed:
            session = Session(self._site.subscriber, self._taking.tx, suffix)
        steps: dict[int, bytes] = {}
        for event in operation.record.consumed:
            if event in self.kept and self.kept[event].suffix == suffix:
                steps[self._settle_home(event, session).step] = b""
        try:
            await self._undoing.commit(session, steps, lambda: self._row(operation.record, session))
        except Fenced:
            self._taking.fenced()
            return p.PrepareFailed(operation.round, "another instance acts for this subscriber now", self._site.now)
        except Exception as error:  # noqa: BLE001  the same: certain that nothing was committed
            return p.PrepareFailed(operation.round, said(error), self._site.now)
        self._in_log = self._in_log or len(session.names) != 1
        self._taking.last_record = operation.record
        return p.Prepared(operation.round, self._site.now)

    # The log

    def _row(self, record: ParticipantRecord, deciding: Session | None = None) -> LogRow:
        """`deciding`: what this row, once it stands, has committed."""
        taking = self._taking
        listed = [s for s in self._all_sessions() if s.committed or not record.compensatable]
        if deciding is not None and deciding not in listed:
            listed.append(deciding)
        return LogRow(
            subscriber=self._site.subscriber,
            tx=taking.tx,
            record=record,
            secret=taking.key.seed,
            resources=tuple(name for session in listed for name in session.descriptors),
            payload_key=taking.payload_key.secret if taking.payload_key is not None else b"",
            events=tuple(encode_kept(self.kept[event]) for event in record.consumed if event in self.kept),
            instance=self._site.instance,
            type=taking.joining.type.name,
            heuristic=self._heuristic,
        )

    async def _write(self, record: ParticipantRecord) -> p.Input | None:
        number = max(record.branches, default=0)
        self._in_log = True
        self._taking.last_record = record
        try:
            await self._site.log.write(self._row(record))
        except Fenced:
            self._taking.fenced()
            return None
        except JournalError as error:
            return p.LogFailed(number, said(error), self._site.now)
        return p.LogWritten(number, self._site.now)

    async def _close_log(self, record: ParticipantRecord) -> None:
        for _ in range(CLOSE_LOG_ATTEMPTS_COUNT):
            try:
                if not self._in_log:
                    await self._site.log.write(self._row(record))
                    self._in_log = True
                await self._site.log.close_row(self._site.subscriber, record.tx, record)
                await self._forget_barriers()
            except (JournalError, ResourceError) as error:
                log.info("%s: %s: its row is closed later: %s", self._site.subscriber, record.tx, error)
                await asyncio.sleep(FINISH_RETRY_SECONDS)
            else:
                self.kept.clear()  # the participation is remembered for a while, the events need not be
                return

    async def _forget_barriers(self) -> None:
        resources = self._site.parts.resources
        for home, suffix in {(kept.home, kept.suffix) for kept in self.kept.values() if kept.home in resources}:
            await resources[home].forget(BranchId(self._site.subscriber, self._taking.tx, f"{home}-{suffix}"))

    async def _record_heuristic(self, effect: p.RecordHeuristic) -> None:
        self._heuristic = effect.finished
        self._site.context.report(
            f"{self._site.subscriber}: {self._taking.tx} was finished here by an operator ({effect.finished}); "
            f"decided: {effect.decided or 'not known yet'}"
        )
        record = self._taking.last_record
        if record is not None:
            with contextlib.suppress(JournalError):  # the operator's word stands in the log, too
                await self._site.log.write(self._row(record))
                self._in_log = True
        if effect.decided is not None:
            self._contradicted = effect.decided
            self._told_operator = False

    async def _tell_operator(self) -> None:
        """That the branch is finished by the operator's word and, later, that it was decided otherwise."""
        if self._told_operator or self._heuristic is None or self._taking.machine.outcome is None:
            return
        try:
            await self._site.log.carried_out(self._site.subscriber, self._taking.tx, self._contradicted)
        except JournalError as error:
            log.warning("%s: %s: the log does not show yet: %s", self._site.subscriber, self._taking.tx, error)
        else:
            self._told_operator = True

    async def _park(self, effect: p.Park) -> None:
        """The machine waits for the operator meanwhile, so nothing else is kept waiting here."""
        while True:
            try:
                await self._site.log.park(self._site.subscriber, self._taking.tx, effect.event, effect.reason)
            except JournalError as error:
                log.warning("%s: %s: not parked yet: %s", self._site.subscriber, self._taking.tx, error)
                await asyncio.sleep(FINISH_RETRY_SECONDS)
            else:
                break
        self._taking.parked(effect.event)

    # Finishing

    async def _finish(self, outcome: Outcome, rounds: tuple[int, ...]) -> p.Input:
        try:
            for session in self._of_rounds(rounds):
                if outcome == "commit" or session.committed:  # what we decided ourselves only goes forward
                    await session.commit()
                else:
                    await session.roll_back()
        except Exception as error:  # noqa: BLE001  whatever a driver raises: the machine asks for it again
            return p.FinishFailed(outcome, said(error), self._site.now)
        return p.ResourcesFinished(outcome, self._site.now)

    async def _compensate(self, operation: p.RunCompensator) -> p.Input:
        kept = self.kept.get(operation.event)
        try:
            await self._secure_row()
            if kept is not None:
                await self._undoing.undo(kept)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001  whatever a compensator raises is its failure
            log.warning("%s: %s: compensation failed: %s", self._site.subscriber, self._taking.tx, error)
            return p.CompensationFailed(operation.event, said(error), self._site.now)
        return p.Compensated(operation.event, self._site.now)

    async def _secure_row(self) -> None:
        """The barrier shows what is not undone yet, so the row that it holds would be out of sight after the first."""
        record = self._taking.last_record
        if not self._in_log and record is not None:
            await self._site.log.write(self._row(record))
            self._in_log = True
