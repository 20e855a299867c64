from __future__ import annotations

import pytest

from tutti.cli.app import start


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("tx abort", ["--journal", "--resources"]),
        ("tx resolve", ["--subscriber", "--resources"]),
        ("tx ls", ["--journal"]),
    ],
)
def test_options_are_explained(line: str, options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert start([*line.split(), "--help"]) == 0
    said = capsys.readouterr().out
    assert all(option in said for option in options)
