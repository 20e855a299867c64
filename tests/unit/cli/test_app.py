from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tutti.cli import main
from tutti.cli.app import start


@pytest.mark.parametrize(
    "command", ["up", "run", "publish", "tail", "doctor", "version", "types", "dead", "subscribers"]
)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert start([command, "--help"]) == 0
    assert f"tutti {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "command",
    ["types ls", "types show", "types asyncapi", "dead ls", "dead show", "dead replay", "dead drop", "subscribers ls"],
)
def test_help_of_subcommands_has_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert start([*command.split(), "--help"]) == 0
    assert f"$ tutti {command}" in capsys.readouterr().out


def test_a_wrong_call_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert start(["tale"]) == 2
    assert capsys.readouterr().err.startswith("error: No such command 'tale'.")
    assert start(["tail", "--count", "none", "--json"]) == 2
    said = json.loads(capsys.readouterr().err)
    assert "--count" in said["error"]
    assert said["hint"] == "see `tutti tail --help`"


def test_nothing_said_is_a_call_for_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert start([]) == 2
    told = capsys.readouterr()
    assert "publish" in told.out + told.err


def test_errors_of_the_user_have_their_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert start(["tail", "--from", "never", "--json"]) == 1
    assert json.loads(capsys.readouterr().err)["kind"] == "DeclarationError"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["types", "ls", "--url", " "], "--url: it is empty"),
        (["types", "ls", "--data", ""], "--data: it is empty"),
        (["types", "ls", "--namespace", ""], "--namespace: it is empty"),
        (["publish", "TradeDone", "--id", ""], "--id: it is empty"),
        (["dead", "show", str(2**64)], str(2**64 - 1)),
        (["dead", "replay", "1", str(2**64)], str(2**64 - 1)),
        (["dead", "drop", str(2**64)], str(2**64 - 1)),
    ],
)
def test_values_that_cannot_be_meant_are_wrong_calls(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert start(arguments) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["tail", "types ls", "dead ls", "subscribers ls", "doctor"])
def test_commands_that_look_make_no_folder(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TUTTI_URL", raising=False)
    monkeypatch.delenv("TUTTI_DATA", raising=False)
    start(command.split())
    told = capsys.readouterr()
    assert "there is no bus in" in told.err or "never had a server" in told.out
    assert list(tmp_path.iterdir()) == []


FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("arguments", [["version"], ["version", "--json"], ["--help"]])
def test_an_output_that_cannot_be_written_is_named(arguments: list[str]) -> None:
    with FULL.open("wb") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "tutti.cli", *arguments], stdout=full, stderr=subprocess.PIPE, check=False, text=True
        )
    assert ran.returncode == 1
    assert "the output cannot be written: No space left on device" in ran.stderr
    assert "bug" not in ran.stderr
    assert "Exception ignored" not in ran.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="a shell of POSIX")
@pytest.mark.parametrize("closed", [">&-", "<&- >&-", "<&- >&- 2>&-"])
def test_a_closed_output_is_no_error(closed: str) -> None:
    command = f'"{sys.executable}" -m tutti.cli version {closed}'
    ran = subprocess.run(["sh", "-c", command], capture_output=True, check=False)  # noqa: S607  every system has one
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")


def test_an_interruption_before_a_command_begins_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("tutti.cli.app.start", interrupted)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130


def test_the_version_comes_alone() -> None:
    ran = subprocess.run([sys.executable, "-m", "tutti.cli", "version", "--json"], capture_output=True, check=True)
    assert set(json.loads(ran.stdout)) == {"tutti", "python", "nats_server"}
    assert ran.stderr == b""
