"""Signatures, wrapped keys, sealed payloads, and the file with the journal's key."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tutti.errors import DeclarationError, InvalidEvent
from tutti.runtime.transactions.keys import (
    PayloadKey,
    SigningKey,
    WrapKey,
    is_signed,
    keep_journal_key,
    read_journal_key,
)

# Signatures


def test_a_signature_holds_for_these_bytes_and_this_key_alone() -> None:
    key, other = SigningKey.fresh(), SigningKey.fresh()
    signature = key.sign(b"yes")
    assert is_signed(b"yes", signature, key.public)
    assert not is_signed(b"no", signature, key.public)
    assert not is_signed(b"yes", signature, other.public)
    assert not is_signed(b"yes", signature[:-1] + bytes([signature[-1] ^ 1]), key.public)


@pytest.mark.parametrize("public", ["", "short", "ä" * 43, "!" * 43, "A" * 500])
def test_whatever_is_no_key_signs_nothing(public: str) -> None:
    key = SigningKey.fresh()
    assert not is_signed(b"yes", key.sign(b"yes"), public)
    assert not is_signed(b"yes", b"", key.public)


def test_a_key_comes_back_from_its_seed() -> None:
    key = SigningKey.fresh()
    assert SigningKey(key.seed).public == key.public
    wrap = WrapKey.fresh()
    assert WrapKey(wrap.seed).public == wrap.public


# Payloads


def test_a_payload_key_is_unwrapped_by_whom_it_was_wrapped_for() -> None:
    payload, mine, another = PayloadKey.fresh(), WrapKey.fresh(), WrapKey.fresh()
    wrapped = payload.wrapped_for(mine.public)
    assert payload.secret not in wrapped
    assert mine.unwrap(wrapped).secret == payload.secret
    with pytest.raises(InvalidEvent, match="not wrapped for this member"):
        another.unwrap(wrapped)
    with pytest.raises(InvalidEvent, match="not wrapped for this member"):
        mine.unwrap(wrapped[:-1])
    with pytest.raises(InvalidEvent):
        mine.unwrap(b"")


def test_what_is_wrapped_must_be_a_key() -> None:
    mine = WrapKey.fresh()
    short = PayloadKey.fresh()
    short.secret = b"short"
    with pytest.raises(InvalidEvent):
        mine.unwrap(short.wrapped_for(mine.public))


def test_a_sealed_payload_opens_at_its_place_alone() -> None:
    key, other = PayloadKey.fresh(), PayloadKey.fresh()
    sealed = key.seal(b"FW26", "j-r-1/manager/Invitation/1")
    assert b"FW26" not in sealed
    assert key.open(sealed, "j-r-1/manager/Invitation/1") == b"FW26"
    for moved in ("j-r-1/manager/Invitation/2", "j-r-2/manager/Invitation/1", "j-r-1/a1/Invitation/1", ""):
        with pytest.raises(InvalidEvent, match="cannot be opened"):
            key.open(sealed, moved)
    with pytest.raises(InvalidEvent, match="cannot be opened"):
        other.open(sealed, "j-r-1/manager/Invitation/1")
    for spoilt in (sealed[:-1], sealed[:10], b"", bytes([sealed[0] ^ 1]) + sealed[1:]):
        with pytest.raises(InvalidEvent, match="cannot be opened"):
            key.open(spoilt, "j-r-1/manager/Invitation/1")


def test_the_same_payload_twice_does_not_look_the_same() -> None:
    key = PayloadKey.fresh()
    assert key.seal(b"FW26", "here") != key.seal(b"FW26", "here")


# The file


def test_the_journals_key_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.key"
    first = keep_journal_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert keep_journal_key(path).public == first.public
    assert [found.name for found in tmp_path.iterdir()] == ["journal.key"]


def test_who_comes_second_at_the_same_moment_takes_the_first_ones_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, link, first = tmp_path / "journal.key", os.link, []

    def late(source: Path, target: Path) -> None:
        monkeypatch.setattr(os, "link", link)
        first.append(keep_journal_key(path))  # between our look and our writing, another process made it
        link(source, target)

    monkeypatch.setattr(os, "link", late)
    assert keep_journal_key(path).public == first[0].public
    assert [found.name for found in tmp_path.iterdir()] == ["journal.key"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o777])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "journal.key"
    keep_journal_key(path)
    path.chmod(mode)
    with pytest.raises(DeclarationError, match="can be read by others") as caught:
        keep_journal_key(path)
    assert "chmod 600" in caught.value.hint


@pytest.mark.parametrize("content", ["", "short\n", "!" * 43, "A" * 100])
def test_a_spoilt_key_is_refused_and_not_replaced(tmp_path: Path, content: str) -> None:
    path = tmp_path / "journal.key"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(DeclarationError, match="holds no journal key"):
        keep_journal_key(path)
    assert path.read_text() == content


def test_reading_makes_no_key(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_journal_key(tmp_path / "journal.key")
    assert list(tmp_path.iterdir()) == []
