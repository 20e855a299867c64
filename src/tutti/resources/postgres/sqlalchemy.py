"""PostgreSQL under SQLAlchemy 2, over asyncpg or psycopg: the user works with an `AsyncConnection` or `AsyncSession`.

    calendar = SqlalchemySessionResource("calendar", "postgresql+asyncpg://…")
    await calendar.start()
    work = await calendar.begin(branch)
    work.connection.add(Appointment(room=room, starts=when))
    vote = await work.prepare()                       # flushes first

`begin_nested()` gives savepoints. A session is joined to the transaction by a savepoint of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, Generic, TypeVar

from sqlalchemy import Connection, CursorResult, event, exc
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine

from tutti.errors import DeclarationError
from tutti.resources.postgres.driver import RESET, TOO_MANY_CONNECTIONS, Fault, fault_of
from tutti.resources.postgres.options import PostgresOptions
from tutti.resources.postgres.resource import PostgresResource
from tutti.resources.postgres.statements import not_yours, notifies, refuse_ending, work_ended

_DRIVERS: Final = ("postgresql+asyncpg", "postgresql+psycopg", "postgresql+psycopg_async")
_INFO: Final = "tutti"

FaceT = TypeVar("FaceT")


class _State:
    """What is known of a connection while it is lent."""

    def __init__(self, *, urgent: bool) -> None:
        self.urgent = urgent
        self.in_branch = False
        self.over = False  # the branch has ended and the connection is on its way back
        self.ours: asyncio.Task[Any] | None = None  # who runs a statement of ours; others' are the user's
        self.notified = False


class BranchConnection(AsyncConnection):
    """An `AsyncConnection` in a transaction of ours."""

    state: _State

    async def commit(self) -> None:
        self._refuse("commit()")
        await super().commit()

    async def rollback(self) -> None:
        self._refuse("rollback()")
        await super().rollback()

    async def close(self) -> None:
        self._refuse("close()")
        await super().close()

    async def invalidate(self, exception: BaseException | None = None) -> None:
        self._refuse("invalidate()")
        await super().invalidate(exception)

    def _refuse(self, what: str) -> None:
        if self.state.in_branch:
            raise not_yours(what)


class BranchSession(AsyncSession):
    """An `AsyncSession` in a transaction of ours."""

    branch_connection: BranchConnection

    async def commit(self) -> None:
        self._refuse("commit()")
        await super().commit()

    async def rollback(self) -> None:
        self._refuse("rollback()")
        await super().rollback()

    async def close(self) -> None:
        self._refuse("close()")
        await super().close()

    async def invalidate(self) -> None:
        self._refuse("invalidate()")
        await super().invalidate()

    def _refuse(self, what: str) -> None:
        if self.branch_connection.state.in_branch:
            raise not_yours(what)


class SqlalchemyDriver(Generic[FaceT]):
    """An engine and its events. Connections that finish branches are in autocommit: COMMIT PREPARED needs that."""

    def __init__(self, name: str, url: str, options: PostgresOptions, settings: dict[str, Any]) -> None:
        if make_url(url).drivername not in _DRIVERS:
            raise DeclarationError(
                f"resource {name!r}: {make_url(url).drivername} is not a driver for asyncio",
                hint="write postgresql+asyncpg://… or postgresql+psycopg://…",
            )
        self._options = options
        self._at_work = asyncio.Semaphore(options.connections)
        self._engine = create_async_engine(
            url,
            pool_size=options.connections,
            max_overflow=options.spare_connections,
            pool_timeout=options.connect_timeout,
            **settings,
        )
        event.listen(self._engine.sync_engine, "before_cursor_execute", _look_at_statement)
        event.listen(self._engine.sync_engine, "commit", _refuse_commit)
        event.listen(self._engine.sync_engine, "rollback", _refuse_rollback)

    def _face(self, connection: BranchConnection) -> FaceT:
        raise NotImplementedError

    def _behind(self, face: FaceT) -> BranchConnection:
        raise NotImplementedError

    async def start(self) -> None:
        await self.release(await self.acquire(urgent=True))

    async def close(self) -> None:
        await self._engine.dispose()

    async def acquire(self, *, urgent: bool) -> FaceT:
        async with asyncio.timeout(self._options.connect_timeout):
            if not urgent:
                await self._at_work.acquire()
            connection = BranchConnection(self._engine)
            connection.state = _State(urgent=urgent)
            try:
                await connection.start()
            except BaseException:
                if not urgent:
                    self._at_work.release()
                raise
        connection.sync_connection.info[_INFO] = connection.state  # type: ignore[union-attr]  # it has just been started
        if urgent:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
        return self._face(connection)

    async def release(self, face: FaceT) -> None:
        connection = self._behind(face)
        try:
            with _ours(connection):
                if not connection.state.urgent:
                    await AsyncConnection.rollback(connection)  # for SQLAlchemy the transaction is still open
                    await connection.execution_options(isolation_level="AUTOCOMMIT")
                    for statement in RESET:
                        await connection.exec_driver_sql(statement)
        except Exception:  # noqa: BLE001  whatever it was, this connection is not lent again
            await self.discard(face)
        else:
            await self._returned(connection)

    async def discard(self, face: FaceT) -> None:
        connection = self._behind(face)
        connection.state.in_branch, connection.state.over = False, True
        with suppress(Exception), _ours(connection):
            await AsyncConnection.invalidate(connection)
        await self._returned(connection)

    async def _returned(self, connection: BranchConnection) -> None:
        with suppress(Exception), _ours(connection):
            await AsyncConnection.close(connection)
        if not connection.state.urgent:
            self._at_work.release()

    async def begin(self, face: FaceT, statements: Sequence[str]) -> None:
        connection = self._behind(face)
        first, *others = statements
        if connection.state.urgent:
            others = [first, *others]
        else:
            await connection.begin()
            if isolation := first.removeprefix("BEGIN").strip():
                others = [f"SET TRANSACTION {isolation}", *others]
        for statement in others:
            await _run(connection, statement)
        connection.state.in_branch = True

    async def flush(self, face: FaceT) -> None: ...

    async def end(self, face: FaceT, statement: str) -> None:
        connection = self._behind(face)
        connection.state.in_branch, connection.state.over = False, True
        with _ours(connection):
            if statement == "ROLLBACK" and not connection.state.urgent:
                await AsyncConnection.rollback(connection)
            elif statement == "COMMIT" and not connection.state.urgent:
                await AsyncConnection.commit(connection)
            else:
                await connection.exec_driver_sql(statement)

    async def run(self, face: FaceT, statement: str) -> int:
        return (await _run(self._behind(face), statement)).rowcount

    async def rows(self, face: FaceT, statement: str) -> Sequence[Sequence[Any]]:
        return (await _run(self._behind(face), statement)).all()

    def changed(self, face: FaceT) -> bool:  # noqa: ARG002  the port's signature
        return False

    def notified(self, face: FaceT) -> bool:
        return self._behind(face).state.notified

    def fault(self, error: BaseException) -> Fault | None:
        match error:
            case exc.DBAPIError():
                sqlstate = getattr(error.orig, "sqlstate", None)
                return fault_of(sqlstate, str(error.orig), lost=error.connection_invalidated or sqlstate is None)
            case exc.TimeoutError():
                return fault_of(TOO_MANY_CONNECTIONS, str(error), lost=False)
            case exc.SQLAlchemyError():  # closed, invalidated, in need of a rollback
                return fault_of(None, str(error), lost=True)
            case OSError():
                return fault_of(None, str(error) or type(error).__name__, lost=True)
            case _ if type(error).__module__.startswith("asyncpg."):  # what the dialect does not translate
                sqlstate = getattr(error, "sqlstate", None)
                return fault_of(sqlstate, str(error), lost=sqlstate is None)
            case _:
                return None


class ConnectionDriver(SqlalchemyDriver[BranchConnection]):
    def _face(self, connection: BranchConnection) -> BranchConnection:
        return connection

    def _behind(self, face: BranchConnection) -> BranchConnection:
        return face


class SessionDriver(SqlalchemyDriver[BranchSession]):
    def _face(self, connection: BranchConnection) -> BranchSession:
        session = BranchSession(bind=connection, join_transaction_mode="create_savepoint", expire_on_commit=False)
        session.branch_connection = connection
        return session

    def _behind(self, face: BranchSession) -> BranchConnection:
        return face.branch_connection

    async def flush(self, face: BranchSession) -> None:
        """To the session this is its commit, to the database the release of the session's savepoint."""
        with _ours(face.branch_connection):
            await AsyncSession.commit(face)

    async def end(self, face: BranchSession, statement: str) -> None:
        if statement == "ROLLBACK":
            with _ours(face.branch_connection):
                await AsyncSession.close(face)
        await super().end(face, statement)


class SqlalchemyConnectionResource(PostgresResource[BranchConnection]):
    """`settings` go to create_async_engine: connect_args, json_serializer, …"""

    def __init__(self, name: str, url: str, options: PostgresOptions | None = None, **settings: Any) -> None:
        chosen = options or PostgresOptions()
        super().__init__(name, ConnectionDriver(name, url, chosen, settings), chosen)


class SqlalchemySessionResource(PostgresResource[BranchSession]):
    """The same with a session. It does not expire objects, since reading them again would need a connection."""

    def __init__(self, name: str, url: str, options: PostgresOptions | None = None, **settings: Any) -> None:
        chosen = options or PostgresOptions()
        super().__init__(name, SessionDriver(name, url, chosen, settings), chosen)


async def _run(connection: BranchConnection, statement: str) -> CursorResult[Any]:
    with _ours(connection):
        return await connection.exec_driver_sql(statement)


@contextmanager
def _ours(connection: BranchConnection) -> Iterator[None]:
    connection.state.ours = asyncio.current_task()
    try:
        yield
    finally:
        connection.state.ours = None


def _state_of(connection: Connection) -> _State | None:
    """If a user's statement is under way."""
    state = connection.info.get(_INFO)
    if not isinstance(state, _State) or (state.ours is not None and state.ours is asyncio.current_task()):
        return None
    if state.over:
        raise work_ended()
    return state if state.in_branch else None


def _look_at_statement(connection: Connection, _cursor: object, statement: str, *_: object) -> None:
    if state := _state_of(connection):
        refuse_ending(statement)
        state.notified = state.notified or notifies(statement)


def _refuse_commit(connection: Connection) -> None:
    if _state_of(connection):
        raise not_yours("commit()")


def _refuse_rollback(connection: Connection) -> None:
    if _state_of(connection):
        raise not_yours("rollback()")
