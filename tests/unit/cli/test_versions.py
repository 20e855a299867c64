from __future__ import annotations

import platform

import tutti
from tutti.bus.embedded import binary
from tutti.cli import versions
from tutti.errors import EmbeddedError


def test_versions_are_told() -> None:
    found = versions.installed()
    assert found.tutti == tutti.__version__
    assert found.python == platform.python_version()
    assert found.nats_server == binary.binary_version(binary.find_binary())


def test_a_missing_server_is_no_error(monkeypatch) -> None:  # type: ignore[no-untyped-def]  # pytest's fixture
    def none() -> None:
        raise EmbeddedError("none")

    monkeypatch.setattr(versions, "find_binary", none)
    found = versions.installed()
    assert found.nats_server == ""
    assert "no nats-server" in str(found.__rich__())
