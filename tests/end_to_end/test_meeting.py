"""The main job, played in earnest: six processes and five databases, two of the processes killed, three wires cut."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from examples.meeting.staging.episodes import EPISODES, NOTHING
from examples.meeting.staging.stage import Picture
from examples.meeting.staging.timeline import Cast, Entry, entry, rows, spoken
from examples.meeting.staging.verdict import Verdict, verdict
from examples.meeting.staging.wire import DECISION, Wire
from tests.leftovers import processes_left
from tutti.model.messages import Decide, encode

ROOT = Path(__file__).parents[2]
BOOKED = {
    "organiser": ["DSOnline"],
    "rooms": ["FW26 DSOnline"],
    "ann": ["DSOnline"],
    "bob": ["DSOnline"],
    "tickets": ["DSOnline sold"],
}
EMPTY: dict[str, list[str]] = {name: [] for name in BOOKED}


@pytest.fixture
def place() -> Iterator[Path]:
    """PostgreSQL's socket is in it, and the system has a limit for the length of that."""
    with tempfile.TemporaryDirectory(prefix="meet-") as folder:
        yield Path(folder)


def play(place: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "examples.meeting", *options],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(place), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_all_or_nothing_five_times(place: Path) -> None:
    with play(place, "--json") as process:
        said, errors = process.communicate(timeout=110)
    lines: list[dict[str, Any]] = [json.loads(line) for line in said.splitlines()]
    assert (process.returncode, errors) == (0, ""), said + errors
    ends = {line["episode"]: line for line in lines if "after" in line}
    steps = {number: [line for line in lines if line.get("episode") == number and "step" in line] for number in ends}
    assert {number: end["actual"] for number, end in ends.items()} == {
        1: "commit",
        2: "abort",
        3: "abort",
        4: "abort",
        5: "commit",
    }
    assert ends[1]["after"] == ends[5]["after"] == BOOKED
    assert ends[2]["after"] == {**EMPTY, "rooms": ["FW26 Faculty Board"]}
    assert ends[3]["after"] == EMPTY
    assert ends[4]["after"] == {**EMPTY, "bob": ["dentist"], "tickets": ["DSOnline refunded"]}
    check_the_crash(steps[3])
    check_the_compensation(steps[4])
    check_who_told_whom(steps[5])
    assert lines[-1]["prepared"] == 0
    assert lines[-1]["holds"]
    assert len(lines[-1]["summary"]) == 5
    assert list(place.glob("tutti-meeting-*")) == []
    assert processes_left(place) == []


def first(steps: list[dict[str, Any]], who: str, word: str) -> int:
    """Where in the history somebody did something."""
    return next(place for place, step in enumerate(steps) if step["step"] == word and who in step["who"])


def check_the_crash(steps: list[dict[str, Any]]) -> None:
    assert first(steps, "ann", "killed") < first(steps, "organiser", "lost") < first(steps, "organiser", "decided")
    assert not [step for step in steps if step["step"] == "voted" and "ann" in step["who"]]


def check_the_compensation(steps: list[dict[str, Any]]) -> None:
    order = [first(steps, "tickets", word) for word in ("committed", "voted", "learned", "undoing", "undone")]
    assert order == sorted(order)
    [no] = [place for place, step in enumerate(steps) if step.get("vote") == "no"]
    assert steps[no]["who"] == ["bob"]
    assert order[0] < no < order[2]


def check_who_told_whom(steps: list[dict[str, Any]]) -> None:
    dead, succeeded = first(steps, "organiser", "killed"), first(steps, "deputy", "succeeded")
    assert first(steps, "rooms", "learned") < dead
    for name in ("ann", "bob", "tickets"):
        learned = first(steps, name, "learned")
        assert dead < learned < succeeded
        assert "learns from its peer" in steps[learned]["sentence"]
        assert steps[learned]["sentence"].endswith(": commit")


def test_an_interrupted_play_leaves_nothing_behind(place: Path) -> None:
    with play(place) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "takes part" in line or "take part" in line:
                break
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "")
    assert processes_left(place) == []
    assert list(place.glob("tutti-meeting-*")) == []


# The timeline


def did(time: float, who: str, step: str, sentence: str = "", **said: str) -> Entry:
    return Entry(time, who, step, sentence or step, "t", said)


def test_a_log_record_becomes_an_entry() -> None:
    record = {
        "time": "2006-03-15T15:00:00.250000Z",
        "logger": "tutti.transactions",
        "message": "j1-1: rooms votes yes",
        "tx": "j1-1",
        "role": "rooms",
        "step": "voted",
    }
    found = entry("rooms", record)
    assert found is not None
    assert (found.time % 1, found.who, found.step, found.sentence) == (0.25, "rooms", "voted", "votes yes")
    assert entry("rooms", {"logger": "tutti.transactions", "message": "its lease runs out by itself"}) is None
    assert entry("rooms", {**record, "logger": "tutti.bus"}) is None


def test_what_several_do_at_once_is_one_row_and_nobody_overtakes_a_manager() -> None:
    entries = [
        did(1.02, "ann", "handling"),
        did(1.00, "organiser", "published"),
        did(1.01, "rooms", "handling"),
        did(1.03, "rooms", "voted"),
        did(1.04, "bob", "handling"),
        did(1.05, "organiser", "decided"),
        did(1.06, "bob", "voted"),
    ]
    assert [(row.step, row.who) for row in rows(entries, Cast())] == [
        ("published", ("organiser",)),
        ("handling", ("rooms", "ann", "bob")),
        ("voted", ("rooms",)),
        ("decided", ("organiser",)),
        ("voted", ("bob",)),
    ]


def test_nobodys_own_steps_change_places() -> None:
    entries = [did(1.0, "rooms", "voted"), did(1.1, "ann", "learned"), did(1.2, "ann", "voted")]
    assert [row.step for row in rows(entries, Cast())] == ["voted", "learned", "voted"]
    late = [did(1.0, "rooms", "voted"), did(9.0, "ann", "voted")]
    assert [row.who for row in rows(late, Cast())] == [("rooms",), ("ann",)]


def test_what_is_repeated_until_it_is_heard_is_shown_once() -> None:
    cast = Cast()
    assert len(rows([did(1.0, "bob", "doubted"), did(2.0, "bob", "doubted")], cast)) == 1
    assert rows([did(4.0, "bob", "doubted")], cast) == []
    assert len(rows([did(5.0, "bob", "handling"), did(6.0, "bob", "handling")], cast)) == 2


def test_pseudonyms_become_names() -> None:
    cast, member = Cast(), "85bd2864" + "0" * 24
    cast.meet(did(1.0, "rooms", "joined", member=member))
    cast.meet(did(1.0, "organiser", "heard", member=member))
    assert cast.named(f"tells its peer {member[:8]} what {member} said, and 0123abcd") == (
        "tells its peer rooms what rooms said, and 0123abcd"
    )


def test_a_row_reads_as_a_sentence() -> None:
    cast = Cast()
    entries = [did(1.0, who, "prepared", "is prepared: its work is on disk") for who in ("rooms", "bob", "ann")]
    [row] = rows(entries, cast)
    assert spoken(row) == "rooms, ann and bob are prepared: their work is on disk"
    [alone] = rows([did(1.0, "ann", "voted", "votes yes")], cast)
    assert spoken(alone) == "ann votes yes"


# The verdict


@pytest.mark.parametrize(
    ("found", "prepared", "learned", "wrong"),
    [
        ({"rooms": ("x",)}, (), "abort", ()),
        ({}, ("bob",), "abort", ()),
        ({}, (), "commit", ()),
        ({}, (), "abort", ("something else",)),
    ],
)
def test_a_broken_promise_is_noticed(
    found: dict[str, tuple[str, ...]], prepared: tuple[str, ...], learned: str, wrong: tuple[str, ...]
) -> None:
    entries = [did(1.0, "organiser", "decided", outcome="abort"), did(1.1, "bob", "learned", outcome=learned)]
    assert not judged({**NOTHING, **found}, prepared, entries, wrong).holds
    entries[1:] = [did(1.1, "bob", "learned", outcome="abort")]
    assert judged(NOTHING, (), entries, ()).holds


def judged(found: Any, prepared: tuple[str, ...], entries: list[Entry], wrong: tuple[str, ...]) -> Verdict:
    return verdict(EPISODES[2], found, prepared, entries, wrong)


# The picture


def test_the_picture_shows_who_did_what_and_ends_with_the_truth() -> None:
    out = io.StringIO()
    picture = Picture(Console(file=out, width=120))
    picture.introduce()
    picture.begin(EPISODES[0])
    began = [did(1.0, "organiser", "invited", "asks who takes part"), did(1.5, "ann", "killed", "is killed")]
    picture.show(rows(began, Cast()))
    picture.show(rows([did(2.0, "bob", "voted", "votes no", vote="no")], Cast()))
    entries = [did(1.0, "organiser", "decided", outcome="commit")]
    good = verdict(EPISODES[0], EPISODES[0].rows, (), entries, ())
    picture.end(EPISODES[0], NOTHING, EPISODES[0].rows, good, ["a note"])
    picture.sum_up([good], 1.0)
    picture.sum_up([verdict(EPISODES[0], NOTHING, ("bob",), entries, ())], 1.0)
    text = out.getvalue()
    lines = text.splitlines()
    [no] = [line for line in lines if "bob votes no" in line]
    assert no.startswith("   +1.000 ")
    assert no.count("│") == 4  # ann's lane is empty: she is dead
    assert "commit: the meeting is in all five databases" in text
    assert "All or nothing, five times." in text
    assert "That should not have happened" in lines[-1]


# The wire


@contextlib.asynccontextmanager
async def wired() -> AsyncIterator[Wire]:
    """A wire to a server that says everything back."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1000):
                writer.write(data)
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        wire = Wire("127.0.0.1", server.sockets[0].getsockname()[1])
        await wire.start()
        yield wire
        await wire.close()


async def ask(wire: Wire, words: bytes, *, first: bytes = b"") -> bytes:
    """What comes back over a connection of its own; nothing if it breaks."""
    reader, writer = await asyncio.open_connection("127.0.0.1", wire.port)
    try:
        if first:
            writer.write(first)
            assert await reader.read(100) == first
            wire.cut_before(DECISION, spared=["t0"])
        writer.write(words)
        return await reader.read(100)
    except ConnectionError:
        return b""
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def test_a_wire_breaks_before_the_decision_and_stays_broken_until_it_is_mended() -> None:
    decision = encode(Decide("t", 1, "commit"))
    async with wired() as wire:
        earlier = encode(Decide("t0", 1, "abort"))
        assert await ask(wire, earlier, first=b"hello") == earlier
        assert await ask(wire, earlier + decision, first=b"hello") == b""
        assert wire.cut.is_set()
        assert await ask(wire, b"hello") == b""
        wire.mend()
        assert await ask(wire, decision) == decision
