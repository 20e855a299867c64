from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import typer

from tutti.cli.app import app
from tutti.cli.options import AtServers, Common, InFolder, Session, perform, problem_of, target
from tutti.errors import DeclarationError, Refused


def test_an_option_beats_the_environment_and_a_url_beats_a_folder(tmp_path: Path) -> None:
    environment = {"TUTTI_URL": "nats://a:1, nats://b:2", "TUTTI_DATA": str(tmp_path)}
    assert target(Common(), environment) == AtServers(("nats://a:1", "nats://b:2"), {})
    assert target(Common(data="/x/y"), environment) == InFolder(Path("/x/y"))
    assert target(Common(url="nats://c:3"), environment) == AtServers(("nats://c:3",), {})
    assert target(Common(), {"TUTTI_DATA": str(tmp_path)}) == InFolder(tmp_path)
    assert target(Common(), {}) == InFolder(Path(".tutti").absolute())


def test_credentials_become_options_of_the_transport(tmp_path: Path) -> None:
    seed = tmp_path / "user.nk"
    seed.write_text("SUAKEY\n")
    found = target(
        Common(url="tls://a:1", nkey=str(seed), tls_ca="ca.pem", synced=True, unsafe=True), {"TUTTI_CREDS": "u.creds"}
    )
    assert isinstance(found, AtServers)
    assert found.options == {
        "nkey_seed": "SUAKEY",
        "creds_file": "u.creds",
        "tls_ca_file": "ca.pem",
        "synced": True,
        "durable": False,
    }
    assert found.nats_options(durable=True).durable


@pytest.mark.parametrize(
    ("common", "said"),
    [
        (Common(url="nats://a:1", data="b"), "both --url"),
        (Common(creds="x.creds"), "no server"),
        (Common(url=" , "), "names no server"),
        (Common(url="nats://a:1", nkey="/nowhere/at/all"), "NKEY file"),
    ],
)
def test_what_does_not_go_together_is_refused(common: Common, said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        target(common, {})


def test_a_folder_without_a_bus_is_probably_the_wrong_one(tmp_path: Path) -> None:
    session = Session(Common(data=str(tmp_path / "no")), output=None)  # type: ignore[arg-type]  # it says nothing
    with pytest.raises(Exception, match="there is no bus in"):
        session.bus(create=False)
    assert not (tmp_path / "no").exists()


def test_errors_end_in_a_sentence_and_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    async def fails(_: Session) -> None:
        raise Refused("the disk is full", hint="make room")

    assert perform(Common(), fails) == 1
    said = capsys.readouterr()
    assert said.err.splitlines() == ["error: the disk is full", "  hint: make room"]
    assert perform(Common(json=True), fails) == 1
    assert capsys.readouterr().err == '{"error":"the disk is full","hint":"make room","kind":"Refused"}\n'


def test_a_traceback_is_shown_only_on_request(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def breaks(_: Session) -> None:
        raise KeyError("x")

    assert perform(Common(), breaks) == 1
    assert "Traceback" not in capsys.readouterr().err
    assert perform(Common(debug=True), breaks) == 1
    assert "Traceback" in capsys.readouterr().err
    monkeypatch.setenv("TUTTI_DEBUG", "1")
    assert perform(Common(), breaks) == 1
    assert "Traceback" in capsys.readouterr().err


def test_ends_have_their_exit_codes() -> None:
    async def code(_: Session) -> int:
        await asyncio.sleep(0)
        return 3

    async def interrupted(_: Session) -> None:
        raise KeyboardInterrupt

    assert perform(Common(), code) == 3
    assert perform(Common(), interrupted) == 130


def test_what_is_no_error_of_ours_asks_for_a_report() -> None:
    assert "please report" in problem_of(ZeroDivisionError("x")).hint


def test_every_command_has_the_common_options() -> None:
    group = typer.main.get_command(app)
    commands = dict(group.commands)  # type: ignore[attr-defined]  # a group
    groups = [commands.pop(name) for name in ("types", "dead", "queues", "subscribers", "tx", "group")]
    every = [*commands.values(), *(command for group in groups for command in group.commands.values())]
    assert len(every) == 26
    for command in every:
        assert set(Common.__struct_fields__) <= {parameter.name for parameter in command.params}, command.name
