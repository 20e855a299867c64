"""Work that is committed before the transaction is decided, and how it is undone.

To commit, with how many resources the session has:

* none: the row in the participants' log is all; the handler must be idempotent;
* one: work, barrier rows and row commit in one local transaction; the row stands in the last barrier row;
* several: all are prepared, the row in the participants' log decides, and they are committed.

To undo an event: its barrier row says whether there is anything to undo. Compensators work in the home of that row; if
they enlist more, those are prepared first, and the home's commit, which holds the row, decides for them too. After a
crash the row tells whether what was prepared is to be committed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tutti.errors import AnswerLost, BranchUnknown, JournalError, ResourceError, ResourceUnfit
from tutti.flow.matcher import Seen
from tutti.journal import LogRow
from tutti.limits import FINISH_RETRY_SECONDS
from tutti.model.decoding import UNDECODABLE
from tutti.model.envelope import Envelope
from tutti.model.involvement import involvement_of
from tutti.model.transaction import Consumed
from tutti.resources import Admission, BranchId, Resource
from tutti.runtime.transactions.bench import CompensatorBench
from tutti.runtime.transactions.events import Heard, opened
from tutti.runtime.transactions.insisting import insist
from tutti.runtime.transactions.sessions import Session
from tutti.runtime.transactions.site import Site

if TYPE_CHECKING:
    from tutti.runtime.transactions.taking import Taking

log = logging.getLogger("tutti.transactions")

_encode: Final = msgspec.msgpack.Encoder().encode


class Kept(msgspec.Struct, frozen=True):
    """An event that was handled: enough to undo it. `home` is the resource with its barrier row, if there is one."""

    event: Consumed
    step: int
    suffix: str
    home: str
    attributes: dict[str, str]
    data: bytes

    def at(self, home: str) -> Kept:
        return msgspec.structs.replace(self, home=home)

    def heard(self) -> Heard | None:
        attributes = dict(self.attributes)
        core = {name: attributes.pop(name, None) for name in ("id", "source", "type", "time", "datacontenttype")}
        attributes.pop("specversion", None)
        told = {"dataschema": attributes.pop("dataschema", None), "subject": attributes.pop("subject", None)}
        envelope = Envelope(data=self.data, extensions=attributes, **core, **told)  # type: ignore[arg-type]  # required ones were there
        involvement = involvement_of(attributes)
        return None if involvement is None else Heard(envelope, involvement, self.event)


_kept: Final = msgspec.msgpack.Decoder(Kept)
_rows: Final = msgspec.msgpack.Decoder(LogRow)


def encode_kept(kept: Kept) -> bytes:
    return _encode(kept)


def decode_kept(encoded: bytes) -> Kept:
    return _kept.decode(encoded)


def encode_row(row: LogRow) -> bytes:
    return _encode(row)


def decode_row(encoded: bytes) -> LogRow | None:
    """None for what is no row: barrier rows of all but the last step hold nothing."""
    try:
        return _rows.decode(encoded) if encoded else None
    except UNDECODABLE as error:
        log.error("a barrier row holds a record that cannot be read: %s", error)  # noqa: TRY400  the row is left alone
        return None


class Undoing:
    def __init__(self, site: Site, taking: Taking) -> None:
        self._site, self._taking = site, taking

    # Committing at once

    async def commit(self, session: Session, steps: Mapping[int, bytes], row: Callable[[], LogRow]) -> None:
        """When this returns, work and row are durable. When it raises, it is certain that neither is, nor will be."""
        names = session.names
        try:
            if not names:
                await self._write(row())
            elif len(names) == 1:
                await self._commit_one(session, steps, row())
            else:
                await session.enter(steps)
                await session.prepare()
                await self._write(row())
        except BaseException:
            await self._roll_back(session)
            raise
        session.committed = True
        if session.prepared:
            await insist(session.commit, f"{self._taking.tx}: committing what the log decided")

    async def _commit_one(self, session: Session, steps: Mapping[int, bytes], row: LogRow) -> None:
        last = max(steps, default=0)
        await session.enter({**steps, last: encode_row(row)})
        try:
            await session.commit_home()
        except BranchUnknown:
            happened: list[bool] = []

            async def look() -> None:
                happened.append(await session.was_committed(last))

            await insist(look, f"{self._taking.tx}: whether its work was committed")
            if not happened[-1]:
                raise

    async def _write(self, row: LogRow) -> None:
        """A write whose answer was lost is repeated until it is known to stand."""
        doubt = False
        while True:
            try:
                await self._site.log.write(row)
            except AnswerLost:
                doubt = True
            except JournalError:
                if not doubt:
                    raise
            else:
                return
            await asyncio.sleep(FINISH_RETRY_SECONDS)

    async def _roll_back(self, session: Session) -> None:
        try:
            await session.roll_back()
        except ResourceError as error:
            log.info("%s: rolled back later: %s", self._taking.tx, error)

    # Undoing

    async def undo(self, kept: Kept) -> None:
        """Once, whatever happens in between. Raises if it was not done, or nobody can tell; then it is tried again."""
        if not kept.home:
            await self._undo_without_barrier(kept)
            return
        home = self._site.parts.resources.get(kept.home)
        if home is None:
            raise ResourceUnfit(
                f"{self._taking.tx}: the resource {kept.home!r} is not declared any more",
                hint=f"Subscriber({self._site.subscriber!r}, resources=[…]) must name it until this is undone",
            )
        session = Session(self._site.subscriber, self._taking.tx, f"{kept.suffix}-u{kept.step}")
        work = await home.begin(BranchId(self._site.subscriber, self._taking.tx, f"{home.name}-{kept.suffix}"))
        try:
            admission = await work.undo(kept.step)
            if admission is Admission.RUN:
                await self._settle_others(session, home, "abort")
                await session.adopt(home, work)
                await self._call(kept, session)
                await session.prepare(without=home.name)
            await work.commit()
        except BranchUnknown:
            raise  # the next attempt reads from the barrier what happened
        except BaseException:
            await work.rollback()
            await self._roll_back(session)
            raise
        if admission is Admission.REPEATED:
            await self._settle_others(session, home, "commit")
        await session.commit()

    async def _undo_without_barrier(self, kept: Kept) -> None:
        session = Session(self._site.subscriber, self._taking.tx, f"{kept.suffix}-u{kept.step}")
        try:
            await self._call(kept, session)
            if session.home:
                await session.prepare(without=session.home)
                await session.commit_home()
        except BaseException:
            await self._roll_back(session)
            raise
        await session.commit()

    async def _settle_others(self, session: Session, home: Resource[Any], outcome: str) -> None:
        """What an attempt before a crash left prepared."""
        for name, resource in self._site.parts.resources.items():
            if resource is home or not resource.prepares:
                continue
            if outcome == "commit":
                await resource.commit(session.branch(name), decided=True)
            else:
                await resource.rollback(session.branch(name), decided=True)

    async def _call(self, kept: Kept, session: Session) -> None:
        """The compensators of the handlers that took the event, the last one first."""
        heard = kept.heard()
        if heard is None:
            return
        bench = CompensatorBench(self._site, self._taking.tx, session)
        for subscription in reversed(self._site.parts.handlers.get(kept.event.type, ())):
            compensator = self._site.parts.compensators.get(subscription.name)
            if compensator is None:
                raise ResourceUnfit(
                    f"{self._taking.tx}: handler {subscription.name!r} has no compensator any more",
                    hint="declare it until everything that was committed is settled",
                )
            value: Any = opened(heard, subscription.published, self._taking.payload_key)
            if subscription.via is not None:
                value = subscription.via.apply(value)
            matcher = self._site.matcher(subscription)
            if not matcher.open and matcher.match(Seen(value, heard.envelope.attributes())) is None:
                continue
            name = getattr(compensator, "__name__", f"compensator of {subscription.name}")
            await self._site.call(compensator, subscription, name, value, self._taking.branch(bench))
