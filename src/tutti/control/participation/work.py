"""What was done in the transaction, and what is said when the manager asks for counts or for a vote.

Not a machine of its own: the part of a participation that works. It has no stages; what may be done when is decided by
the participation."""

from __future__ import annotations

import msgspec

from tutti.control.participation.messages import Effect, Fetch, Handle, Part, Publish
from tutti.control.participation.receipt import Receipt
from tutti.model.messages import Close, Prepare, Send, Tally, To, Vote
from tutti.model.transaction import Consumed, LogState, ParticipantRecord


class Work:
    """`branch` numbers the session in which handlers work now; `branches` were prepared, or committed."""

    __slots__ = (
        "_close",
        "_fetched",
        "_opened",
        "_part",
        "_tally",
        "branch",
        "branches",
        "committed",
        "consumed",
        "ended",
        "member",
        "prepare",
        "receipt",
        "sent",
    )

    def __init__(self, part: Part, member: str, record: ParticipantRecord | None = None) -> None:
        self._part = part
        self.member = member
        consumed = record.consumed if record is not None else ()
        self.receipt = Receipt(consumed)
        self.sent: dict[str, int] = dict(record.sent.get(member, {})) if record is not None else {}
        self.consumed = list(consumed)  # in the order in which they were completed
        self.committed = list(consumed) if part.compensatable else []  # needs a compensation if it comes to that
        self.branches = record.branches if record is not None else ()
        self.branch = max(self.branches, default=1)
        self.ended = False  # the work of everybody: nothing is deferred any more
        self.prepare: Prepare | None = None  # not answered yet
        self._close: Close | None = None  # the last question for counts
        self._tally: Tally | None = None  # the last answer
        self._opened = (0, 0)  # the epoch and round that were answered with `open`
        self._fetched: set[tuple[str, str, int]] = set()

    @property
    def early(self) -> bool:
        return self._part.compensatable and self._part.early_commit

    # Events

    def complete(self, event: Consumed) -> None:
        self.consumed.append(event)
        if self.early and event not in self.committed:
            self.committed.append(event)

    def publish(self, event: str, event_type: str) -> Publish:
        number = self.sent[event_type] = self.sent.get(event_type, 0) + 1
        return Publish(event, event_type, number)

    def get_ready(self) -> None:
        self.drop_questions()
        self.branches = (*self.branches, self.branch)

    def fail(self) -> None:
        """It is certain that nothing of this branch was prepared, or committed."""
        self.branches = tuple(branch for branch in self.branches if branch != self.branch)

    def suspect(self) -> None:
        """What is on its way may be committed though nobody has said so yet. It is undone too: the barrier knows."""
        if self._part.compensatable and self.branch in self.branches:
            self.committed[:] = self.consumed
        if self.early and self.receipt.running is not None:
            self.committed.append(self.receipt.running)

    def release(self) -> None:
        self.receipt.release(work_ended=self.ended)

    # Questions of the manager

    def ask(self, asked: Close | Prepare) -> None:
        if isinstance(asked, Prepare):
            self.prepare = asked
        elif self.prepare is None or (asked.epoch, asked.round) > (self.prepare.epoch, self.prepare.round):
            self.prepare, self._close = None, asked
        if asked.work_ended:
            self.ended = True
            self.release()

    def drop_questions(self) -> None:
        self.prepare = self._close = None

    def go_on(self, epoch: int, *, again: bool = False) -> list[Effect]:
        """Handle what is next; say what is asked for. `again`: although it was said before."""
        effects: list[Effect] = []
        if (event := self.receipt.next()) is not None:
            effects.append(Handle(event, self.branch, commit=self.early))
        if self.prepare is not None:
            return [*effects, *self._consider(self.prepare)]
        if self._close is not None and self.receipt.idle and self._close.epoch >= epoch:
            effects += self._report(self._close, again=again)
        return effects

    def agrees(self) -> bool:
        """Whether the prepare can be answered with yes, as far as counts go."""
        counts = self.prepare.counts if self.prepare is not None else None
        return (
            counts is not None
            and not self.receipt.holds
            and counts.get(self.member, {}) == self.sent
            and not any(True for _ in self.receipt.missing(counts, self._part.handles))
        )

    def contradicts(self) -> bool:
        """Whether the prepare counts events of ours that we know nothing of."""
        own = self.prepare.counts.get(self.member, {}) if self.prepare is not None else {}
        return self.receipt.idle and any(number > self.sent.get(t, 0) for t, number in own.items())

    def _consider(self, prepare: Prepare) -> list[Effect]:
        own = prepare.counts.get(self.member, {})
        more = any(number > own.get(event_type, 0) for event_type, number in self.sent.items())
        surplus = self.receipt.surplus(prepare.counts, self._part.handles)
        if more or surplus or self.receipt.holds or self._opened == (prepare.epoch, prepare.round):
            return [self._open(prepare)]
        effects: list[Effect] = []
        for publisher, event_type, numbers in self.receipt.missing(prepare.counts, self._part.handles):
            lost = tuple(number for number in numbers if (publisher, event_type, number) not in self._fetched)
            self._fetched.update((publisher, event_type, number) for number in lost)
            effects += [Fetch(publisher, event_type, lost)] if lost else []
        return effects

    def _open(self, prepare: Prepare) -> Send:
        self.prepare = None
        self._opened = (prepare.epoch, prepare.round)
        vote = Vote(prepare.tx, prepare.epoch, prepare.round, self.member, "open", deferred=self.receipt.holds)
        return Send(vote, To.MANAGER)

    def _report(self, close: Close, *, again: bool) -> list[Effect]:
        last = self._tally
        same = last is not None and (last.epoch, last.round) == (close.epoch, close.round)
        tally = Tally(
            tx=close.tx,
            epoch=close.epoch,
            round=close.round,
            member=self.member,
            turn=last.turn if last is not None and same else 0,
            sent=dict(self.sent),
            received=self.receipt.counts(),
            handles=self._part.handles,
            deferred=self.receipt.holds,
        )
        if tally == last:
            return [Send(tally, To.MANAGER)] if again else []
        self._tally = msgspec.structs.replace(tally, turn=tally.turn + 1)
        return [Send(self._tally, To.MANAGER)]

    def record(self, state: LogState, epoch: int, number: int, deadline: float) -> ParticipantRecord:
        """For the own log."""
        part = self._part
        return ParticipantRecord(
            tx=part.tx,
            pseudonym=part.pseudonym,
            key=part.key,
            state=state,
            epoch=epoch,
            round=number,
            deadline=deadline,
            compensatable=part.compensatable,
            group=part.group,
            sent={self.member: dict(self.sent)} if self.sent else {},
            consumed=tuple(self.consumed),
            branches=self.branches,
        )
