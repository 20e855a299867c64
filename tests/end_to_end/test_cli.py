"""The commands as people use them: real processes over one embedded server, kept by `tutti up`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import pytest

PATIENCE_SECONDS: Final = 20.0
DESK: Final = """
import os
import sys
import threading
from decimal import Decimal
from typing import Annotated

import tutti


class TradeDone(tutti.Event):
    symbol: Annotated[str, tutti.routing]
    price: Decimal
    quantity: int = 1


desk = tutti.Subscriber("desk", policy=tutti.Policy(attempts=2, backoff=tutti.Backoff(first=0.01, most=0.02)))
hanging = tutti.Subscriber("hanging")


def say(*words):
    print(*words, flush=True)


@desk.on(TradeDone, where="symbol = 'IBM' AND price > 100")
async def trade(event: TradeDone, delivery: tutti.Delivery) -> None:
    if event.quantity == 13 and not os.path.exists("lucky"):
        raise ValueError("unlucky")
    say('{"handled": "%s"}' % delivery.id)


@hanging.on(TradeDone)
def hang(event: TradeDone) -> None:
    say('{"hanging": true}')
    threading.Event().wait()
"""


class Shop:
    """A folder with a module of subscribers, and a data folder; commands are run in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("TUTTI_")}
        self.environment |= {"TUTTI_DATA": str(folder / "data"), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(self, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tutti.cli", *words],
            cwd=self.folder,
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def ask(self, *words: str, stdin: str | None = None) -> Any:
        """The JSON answer of a command that succeeds."""
        ran = self.run(*words, "--json", stdin=stdin)
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    @contextmanager
    def start(self, *words: str) -> Iterator[Running]:
        with (self.folder / "errors.log").open("ab") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "tutti.cli", *words, "--json"],
                cwd=self.folder,
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        running = Running(process)
        try:
            yield running
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            running.out.close()


class Running:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        self.out: IO[str] = process.stdout

    def line(self) -> Any:
        """The next line of its output; the test's own time-out guards it."""
        line = self.out.readline()
        assert line, f"it ended with {self.process.wait()}"
        return json.loads(line)

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    shop = Shop(tmp_path_factory.mktemp("shop"))
    (shop.folder / "desk.py").write_text(DESK)
    with shop.start("up") as up:
        ready = up.line()
        assert ready["ready"]
        assert ready["folder"] == str(shop.folder / "data")
        assert "@" not in ready["url"]  # no secrets on the screen
        advertise = "import asyncio, tutti, desk\nasync def main():\n async with tutti.connect() as bus:\n"
        advertise += "  await bus.advertise(desk.TradeDone)\nasyncio.run(main())"
        subprocess.run([sys.executable, "-c", advertise], cwd=shop.folder, env=shop.environment, check=True)
        yield shop
        assert up.end(signal.SIGINT) == 0


def test_types_are_listed_shown_and_documented(shop: Shop) -> None:
    assert [known["type"] for known in shop.ask("types", "ls")["types"]] == ["TradeDone"]
    assert shop.ask("types", "show", "TradeDone")["routing"][0]["name"] == "symbol"
    assert shop.ask("types", "asyncapi", "--out", "api.json")["types"] == 1
    assert json.loads((shop.folder / "api.json").read_text())["asyncapi"] == "3.0.0"
    assert "TradeDone" in shop.run("types", "ls").stdout


def test_what_is_published_is_tailed(shop: Shop) -> None:
    one = shop.ask("publish", "TradeDone", '{"symbol": "SAP", "price": "10.50"}', "--id", "tail-1")
    assert shop.ask("publish", "TradeDone", "symbol=SAP", "price=10.50", "--id", "tail-1")["duplicate"]
    lines = "".join(json.dumps({"symbol": "SAP", "price": str(price)}) + "\n" for price in (5, 11, 12))
    ran = shop.run("publish", "TradeDone", "-", "--as", "stdin", "--json", stdin=lines)
    assert [json.loads(line)["sequence"] - one["sequence"] for line in ran.stdout.splitlines()] == [1, 2, 3]
    words = ("--where", "symbol = 'SAP' AND price > 10", "--from", str(one["sequence"]), "--count", "3", "--json")
    tailed = [json.loads(line) for line in shop.run("tail", "TradeDone", *words).stdout.splitlines()]
    assert [event["data"]["price"] for event in tailed] == ["10.50", "11", "12"]
    assert tailed[0]["id"] == "tail-1"
    pretty = shop.run("tail", "--from", str(one["sequence"]), "--count", "1").stdout
    assert "TradeDone" in pretty
    assert "symbol=SAP price=10.50 quantity=1" in pretty


def test_mistakes_are_told_without_a_traceback(shop: Shop) -> None:
    wrong = {
        ("publish", "TradeDone", "symbol=IBM", "price=much"): (1, "price"),
        ("publish", "TradeDone", '{"symbol": "IBM"}'): (1, "missing required field `price`"),
        ("publish", "Unknown", "{}"): (1, "no type 'Unknown' is advertised"),
        ("tail", "--where", "price >"): (1, "price >"),
        ("run", "desk:nobody"): (1, "desk:desk, desk:hanging"),
        ("run", "nowhere:desk"): (1, "there is no module nowhere"),
        ("dead", "show", "99"): (1, "no dead letter 99"),
        ("dead", "drop"): (1, "tutti dead ls"),
        ("subscribers", "drop", "nobody"): (1, "there is no subscriber 'nobody'"),
        ("types", "ls", "--data", "elsewhere"): (1, "there is no bus in"),
        ("tail", "--count", "zero"): (2, "--count"),
    }
    for words, (code, said) in wrong.items():
        ran = shop.run(*words)
        assert ran.returncode == code, words
        assert ran.stderr.startswith("error: "), words
        assert said in ran.stderr, words
        assert "Traceback" not in ran.stderr, words
    assert json.loads(shop.run("publish", "Unknown", "{}", "--json").stderr)["kind"] == "UnknownType"
    assert "Traceback" in shop.run("publish", "Unknown", "{}", "--debug").stderr


def test_a_subscriber_is_served_watched_and_stopped(shop: Shop) -> None:
    with shop.start("run", "desk:desk", "--metrics-port", "0", "--log", "json") as run:
        up = run.line()
        assert up["subscribers"] == {"desk": ["trade"]}
        shop.ask("publish", "TradeDone", "symbol=IBM", "price=99", "--id", "cheap")
        shop.ask("publish", "TradeDone", "symbol=IBM", "price=101", "--id", "dear")
        assert run.line() == {"handled": "dear"}
        assert b"tutti_handled_total" in page(up, "/metrics")
        assert json.loads(page(up, "/health"))["state"] == "ok"
        (served,) = shop.ask("subscribers", "ls")["subscribers"]
        assert served["name"] == "desk"
        assert len(served["instances"]) == 1
        assert shop.run("subscribers", "drop", "desk").returncode == 1  # it lives
        shop.ask("publish", "TradeDone", "symbol=IBM", "price=200", "quantity=13", "--id", "unlucky")
        letter = until_letter(shop)
        assert (letter["event_id"], letter["attempts"], letter["reason"]) == ("unlucky", 2, "ValueError: unlucky")
        assert "unlucky" in shop.ask("dead", "show", str(letter["number"]))["traceback"]
        (shop.folder / "lucky").touch()
        assert shop.ask("dead", "replay", "--all")["numbers"] == [letter["number"]]
        assert run.line() == {"handled": "unlucky"}
        assert run.end() == 0
        assert run.line() == {"finished": True}
    logged = [json.loads(line) for line in (shop.folder / "errors.log").read_text().splitlines() if line[:1] == "{"]
    assert any(entry.get("event_id") == "unlucky" and entry["level"] == "warning" for entry in logged)
    assert shop.ask("dead", "ls")["letters"] == []
    assert shop.ask("subscribers", "drop", "desk")["subscriber"] == "desk"
    assert shop.ask("subscribers", "ls")["subscribers"] == []


def page(up: dict[str, Any], path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{up['metrics_port']}{path}", timeout=5) as answer:
        found: bytes = answer.read()
    return found


def until_letter(shop: Shop) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        letters: list[dict[str, Any]] = shop.ask("dead", "ls")["letters"]
        if letters:
            return letters[0]
    raise AssertionError("no dead letter came")


def test_a_hanging_thread_does_not_keep_the_process(shop: Shop) -> None:
    with shop.start("run", "desk:hanging", "--grace", "0.2") as run:
        assert run.line()["ready"]
        shop.ask("publish", "TradeDone", "symbol=X", "price=1")
        assert run.line() == {"hanging": True}
        assert run.end() == 1
        assert run.line() == {"finished": False}
    assert shop.ask("subscribers", "drop", "hanging", "--force")["subscriber"] == "hanging"


def test_a_second_signal_ends_at_once(shop: Shop) -> None:
    with shop.start("run", "desk:hanging", "--grace", "600") as run:
        assert run.line()["ready"]
        shop.ask("publish", "TradeDone", "symbol=X", "price=1")
        assert run.line() == {"hanging": True}
        before = (shop.folder / "errors.log").read_text().count("stopping")
        run.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (shop.folder / "errors.log").read_text().count("stopping") == before:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert run.end() == 128 + signal.SIGTERM
    assert shop.ask("subscribers", "drop", "hanging", "--force")["subscriber"] == "hanging"


def test_the_doctor_finds_what_is_left_behind(shop: Shop) -> None:
    with shop.start("run", "desk:desk") as run:
        assert run.line()["ready"]
        run.process.kill()
        run.process.wait()
    diagnosis = shop.ask("doctor")
    assert diagnosis["healthy"]
    found = {(finding["area"], finding["level"]): finding for finding in diagnosis["findings"]}
    assert "kept by `tutti up`" in found["folder", "ok"]["what"]
    assert ("server", "ok") in found
    assert ("durability", "ok") in found
    assert "nobody serves it" in found["subscriber", "warning"]["what"]
    assert "without handing back" in found["lease", "warning"]["what"]
    assert "tutti-events-events" in shop.run("doctor").stdout
    shop.ask("subscribers", "drop", "desk", "--force")


def test_the_doctor_says_when_nobody_answers(shop: Shop) -> None:
    ran = shop.run("doctor", "--url", "http://127.0.0.1:1", "--json")
    assert ran.returncode == 1
    assert not json.loads(ran.stdout)["healthy"]


def test_a_reader_that_leaves_ends_a_tail_quietly(shop: Shop) -> None:
    for i in range(3):
        shop.ask("publish", "TradeDone", "symbol=Y", f"price={i}")
    command = f"{sys.executable} -m tutti.cli tail --from earliest --json | head -n 1"
    ran = subprocess.run(
        ["/bin/sh", "-c", command], cwd=shop.folder, env=shop.environment, capture_output=True, timeout=30, check=True
    )
    assert json.loads(ran.stdout)["type"] == "TradeDone"
    assert ran.stderr == b""
