"""What holds for every test: repeatable properties, loopback only, and nothing left behind.

`pytest --hypothesis-profile=explore` looks for new examples; the default always tries the same ones, so that a red run
is red again.
"""

from __future__ import annotations

import asyncio
import inspect
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests import leftovers
from tutti.resources.embedded_postgres import EmbeddedPostgres

# A busy machine makes examples slow, not wrong: neither time nor slow generation is a finding here.
_slow = [HealthCheck.too_slow]
settings.register_profile(
    "ci", derandomize=True, database=None, deadline=None, max_examples=60, print_blob=True, suppress_health_check=_slow
)
settings.register_profile("explore", deadline=None, max_examples=2_000, print_blob=True, suppress_health_check=_slow)
settings.load_profile("ci")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Async tests get `no_task_left` as their outermost fixture: it looks when every other async fixture has ended."""
    for item in items:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(_test_body(item)):
            item.fixturenames.insert(item.fixturenames.index("nothing_left"), "no_task_left")


@pytest.fixture
async def no_task_left() -> AsyncIterator[None]:
    """Fails a test that leaves a task running, or lost the exception of one."""
    lost: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: lost.append(_described(context)))
    before = asyncio.all_tasks()
    yield
    left = await leftovers.tasks_left(before)
    if left or lost:
        pytest.fail("left behind: " + "; ".join([*left, *lost]), pytrace=False)


@pytest.fixture(autouse=True)
def nothing_left(connections_refused: list[str]) -> Iterator[None]:
    """Fails a test that leaves a thread or a child process, or that talked to another machine."""
    threads, children = leftovers.threads(), leftovers.children()
    connections_refused.clear()
    yield
    left = leftovers.threads_left(threads) + leftovers.children_left(children) + connections_refused
    if left:
        pytest.fail("left behind: " + "; ".join(left), pytrace=False)


@pytest.fixture(scope="session", autouse=True)
def no_process_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Detached servers outlive their test by a moment, but not the session."""
    yield
    left = leftovers.processes_left(tmp_path_factory.getbasetemp())
    if left:
        pytest.fail("left behind: " + "; ".join(left), pytrace=False)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """One PostgreSQL for the session: whoever uses it creates a database of its own, and never stops it."""
    with EmbeddedPostgres(tmp_path_factory.mktemp("postgres")) as server:
        yield server


@pytest.fixture(scope="session")
def connections_refused() -> Iterator[list[str]]:
    """Sockets of this process reach the loopback interface only; other attempts are refused and shown at the end."""
    refused: list[str] = []

    def guarded(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(sock: socket.socket, address: object, /) -> Any:
            if leftovers.leaves_machine(address):
                refused.append(f"socket.{name}({address!r})")
                raise PermissionError(f"tests stay on the loopback interface, not {address!r}")
            return original(sock, address)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "connect_ex", "bind"):
            patch.setattr(socket.socket, name, guarded(name, getattr(socket.socket, name)))
        yield refused


def _test_body(item: pytest.Function) -> object:
    """The function as it was written, also under Hypothesis' `@given`."""
    return getattr(getattr(item.obj, "hypothesis", None), "inner_test", item.obj)


def _described(context: dict[str, Any]) -> str:
    return f"{context.get('message', 'an error in the event loop')} ({context.get('exception')!r})"
