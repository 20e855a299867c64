"""The PostgreSQL journal where a server is involved: lost answers, restarts, rights, settings."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest

from tutti.errors import AnswerLost, DeclarationError, JournalUnfit, JournalUnreachable
from tutti.journal import Proposal, Undecided
from tutti.journal.postgres import PostgresJournal
from tutti.journal.schema import FORMAT
from tutti.model.transaction import Decision, TransactionRecord
from tutti.resources.embedded_postgres import EmbeddedPostgres

PATIENCE = 10.0


@pytest.fixture
def schema() -> str:
    return f"journal_{secrets.token_hex(4)}"


@pytest.fixture
async def journal(postgres: EmbeddedPostgres, schema: str) -> AsyncIterator[PostgresJournal]:
    journal = PostgresJournal(postgres.url(), schema=schema, busy=0.3)
    await journal.start()
    yield journal
    await journal.close()


async def begun(journal: PostgresJournal) -> str:
    tx = f"{journal.id}-{secrets.token_hex(4)}"
    await journal.register(TransactionRecord(tx, "Meeting", 1.0, "m", 1))
    return tx


class Wire:
    """Stands between a client and the server, and breaks in the middle of a COMMIT: before it, or behind it."""

    def __init__(self, server: Path) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.breaks = ""
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(str(self._server))
            self._sockets += [client, server]
            for source, target, way in ((client, server, "up"), (server, client, "down")):
                thread = threading.Thread(target=self._carry, args=(source, target, way))
                thread.start()
                self._threads.append(thread)

    def _carry(self, source: socket.socket, target: socket.socket, way: str) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if b"COMMIT\0" in data and (self.breaks, way) in {("before", "up"), ("behind", "down")}:
                    break  # nobody hears the request, or nobody hears that it was done
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE)
        for one in self._sockets:
            one.close()


@pytest.fixture
def wire(postgres: EmbeddedPostgres) -> Iterator[Wire]:
    wire = Wire(postgres.socket_folder / ".s.PGSQL.5432")
    yield wire
    wire.close()


@pytest.mark.parametrize("breaks", ["before", "behind"])
async def test_a_lost_answer_is_found_by_asking_again(wire: Wire, schema: str, breaks: str) -> None:
    """Nobody can know whether the commit arrived. The same call again answers what stands, whoever was first."""
    journal = PostgresJournal(f"postgresql://postgres@127.0.0.1:{wire.port}/postgres?sslmode=disable", schema=schema)
    await journal.start()
    tx, other = await begun(journal), await begun(journal)
    wire.breaks = breaks
    with pytest.raises(AnswerLost, match="make the same call again"):
        await journal.decide(Proposal(tx, "commit", 1, claims=("q/1",)))
    wire.breaks = ""
    standing = await journal.decision(tx)
    assert isinstance(standing, Decision if breaks == "behind" else Undecided)
    assert (await journal.decide(Proposal(tx, "commit", 1, claims=("q/1",)))).outcome == "commit"
    wire.breaks = breaks
    with pytest.raises(AnswerLost):
        await journal.decide(Proposal(other, "commit", 1))
    wire.breaks = ""
    # Who decides otherwise after a lost answer is told the truth all the same.
    second = await journal.decide(Proposal(other, "abort", 1))
    assert second.outcome == ("commit" if breaks == "behind" else "abort")
    await journal.close()


async def test_a_server_that_is_gone_and_comes_back(tmp_path: Path) -> None:
    with EmbeddedPostgres(tmp_path) as server:
        journal = PostgresJournal(server.url(), connect=2)
        await journal.start()
        decided, open_ = await begun(journal), await begun(journal)
        await journal.decide(Proposal(decided, "commit", 1))
        await asyncio.to_thread(server.kill)
        calls = [journal.decide(Proposal(open_, "commit", 1)) for _ in range(5)]
        found = await asyncio.gather(*calls, journal.decision(decided), return_exceptions=True)
        assert {type(one) for one in found} == {JournalUnreachable}, "never an answer that is guessed"
        await asyncio.to_thread(server.start)
        standing = await journal.decision(decided)
        assert isinstance(standing, Decision)
        assert standing.outcome == "commit"
        assert isinstance(await journal.decision(open_), Undecided)
        assert (await journal.decide(Proposal(open_, "abort", 1))).outcome == "abort"
        await journal.close()


async def test_a_restart_between_two_calls_is_not_noticed(postgres: EmbeddedPostgres, journal: PostgresJournal) -> None:
    tx = await begun(journal)
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tutti-journal'"
        )
    assert isinstance(await journal.decision(tx), Undecided)
    assert (await journal.decide(Proposal(tx, "commit", 1))).outcome == "commit"


async def test_a_row_that_somebody_else_holds(
    postgres: EmbeddedPostgres, journal: PostgresJournal, schema: str
) -> None:
    tx, free = await begun(journal), await begun(journal)
    with psycopg.connect(postgres.url()) as stranger:
        stranger.execute(f"SELECT * FROM {schema}.transactions WHERE tx = %s FOR UPDATE", (tx,))  # noqa: S608  the name of the test's own schema
        with pytest.raises(JournalUnreachable, match="lock timeout"):
            await journal.decide(Proposal(tx, "commit", 1))
        assert (await journal.decide(Proposal(free, "commit", 1))).outcome == "commit"
        stranger.rollback()
    assert (await journal.decide(Proposal(tx, "commit", 1))).outcome == "commit"


async def test_a_newer_format_is_refused(postgres: EmbeddedPostgres, journal: PostgresJournal, schema: str) -> None:
    with psycopg.connect(postgres.url(), options=f"-c search_path={schema}", autocommit=True) as connection:
        connection.execute("UPDATE meta SET value = %s WHERE name <> 'id'", (str(FORMAT + 1),))
    with pytest.raises(JournalUnfit, match="upgrade Tutti here"):
        await PostgresJournal(postgres.url(), schema=schema).start()


async def test_starting_at_once_makes_one_journal(postgres: EmbeddedPostgres, schema: str) -> None:
    journals = [PostgresJournal(postgres.url(), schema=schema) for _ in range(4)]
    await asyncio.gather(*(journal.start() for journal in journals))
    assert len({journal.id for journal in journals}) == 1
    for journal in journals:
        await journal.close()


async def test_two_schemas_are_two_journals(postgres: EmbeddedPostgres, journal: PostgresJournal, schema: str) -> None:
    other = PostgresJournal(postgres.url(), schema=schema + "_2")
    await other.start()
    assert other.id != journal.id
    await other.close()


async def test_rights_and_addresses_are_explained(postgres: EmbeddedPostgres, schema: str) -> None:
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS nosy")
        connection.execute("CREATE ROLE nosy LOGIN")
    nosy = postgres.url().replace("//postgres@", "//nosy:secret@")
    with pytest.raises(JournalUnfit, match="GRANT this user") as caught:
        await PostgresJournal(nosy, schema=schema).start()
    assert "secret" not in str(caught.value)
    with pytest.raises(JournalUnreachable, match="nowhere"):
        await PostgresJournal(postgres.url("nowhere"), schema=schema).start()
    with pytest.raises(DeclarationError, match="no address"):
        PostgresJournal("mailto:ada")
    with pytest.raises(DeclarationError, match="cannot name the journal's schema"):
        PostgresJournal(postgres.url(), schema='x"; DROP SCHEMA public')


async def test_a_server_that_does_not_sync_is_refused(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path)
    server._settings["fsync"] = "off"
    with server:
        with pytest.raises(JournalUnfit, match="does not sync: fsync=off"):
            await PostgresJournal(server.url()).start()
        journal = PostgresJournal(server.url(), durable=False)
        await journal.start()
        await journal.close()


def test_threads_with_event_loops_of_their_own_share_it(postgres: EmbeddedPostgres, schema: str) -> None:
    journal = PostgresJournal(postgres.url(), schema=schema)
    asyncio.run(journal.start())
    tx = asyncio.run(begun(journal))
    found: list[str] = []

    def propose(outcome: str) -> None:
        proposal = Proposal(tx, "commit" if outcome == "commit" else "abort", 1)
        found.append(asyncio.run(journal.decide(proposal)).outcome)

    threads = [threading.Thread(target=propose, args=(outcome,)) for outcome in ("commit", "abort") * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    asyncio.run(journal.close())
