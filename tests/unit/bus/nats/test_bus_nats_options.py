from __future__ import annotations

from pathlib import Path

import pytest

from tutti.bus.nats.options import Endpoint, NatsOptions, endpoints, hello, read_creds, tls_context
from tutti.bus.nats.protocol import ServerInfo
from tutti.errors import DeclarationError, Denied

SEED = "SUAIBDPBAUTWCWBKIO6XHQNINK5FWJW4OHLXC3HQ2KFE4PEJUA44CNHTC4"
INFO = ServerInfo(nonce="abc")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("nats://h", Endpoint("h", 4222)),
        ("h:1", Endpoint("h", 1)),
        ("tls://h:5", Endpoint("h", 5, tls=True)),
        ("nats://u:p%40@h:5", Endpoint("h", 5, user="u", password="p@")),
        ("nats://[::1]:5", Endpoint("::1", 5)),
    ],
)
def test_addresses(url: str, expected: Endpoint) -> None:
    assert Endpoint.parse(url) == expected
    assert Endpoint.parse(str(expected)).port == expected.port


@pytest.mark.parametrize("url", ["http://h", "nats://", "nats://h:x", "nats://h:99999"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(DeclarationError, match="is not the address of a NATS server"):
        Endpoint.parse(url)


def test_several_addresses() -> None:
    assert [one.host for one in endpoints(("nats://a, nats://b", "c"))] == ["a", "b", "c"]
    with pytest.raises(DeclarationError, match="no server"):
        endpoints(())


def test_secrets_are_not_shown() -> None:
    shown = repr(
        NatsOptions(urls=("nats://u:hidden1@h",), user="anna", password="hidden2", token="hidden3", nkey_seed=SEED)
    )
    assert "hidden" not in shown
    assert SEED not in shown
    assert "anna" in shown
    assert "nats://h:4222" in shown


@pytest.mark.parametrize(
    ("options", "endpoint", "expected"),
    [
        (NatsOptions(), Endpoint("h", 1), {}),
        (NatsOptions(user="u", password="p"), Endpoint("h", 1, user="x", password="y"), {"user": "u", "pass": "p"}),
        (NatsOptions(token="t"), Endpoint("h", 1), {"auth_token": "t"}),
        (NatsOptions(), Endpoint("h", 1, user="x", password="y"), {"user": "x", "pass": "y"}),
        (NatsOptions(), Endpoint("h", 1, user="t"), {"auth_token": "t"}),
    ],
)
def test_credentials(options: NatsOptions, endpoint: Endpoint, expected: dict[str, str]) -> None:
    words = hello(options, endpoint, INFO, tls=False)
    assert {name: words[name] for name in ("user", "pass", "auth_token", "jwt", "nkey") if name in words} == expected


def test_a_seed_signs_the_servers_nonce() -> None:
    words = hello(NatsOptions(nkey_seed=SEED), Endpoint("h", 1), INFO, tls=True)
    assert str(words["nkey"]).startswith("U")
    assert len(str(words["sig"])) == 86
    assert words["tls_required"] is True
    other = hello(NatsOptions(nkey_seed=SEED), Endpoint("h", 1), ServerInfo(nonce="def"), tls=True)
    assert words["sig"] != other["sig"]


def test_a_credentials_file(tmp_path: Path) -> None:
    path = tmp_path / "user.creds"
    path.write_text(
        "-----BEGIN NATS USER JWT-----\neyJ.abc\n------END NATS USER JWT------\n\n*** note ***\n"
        f"-----BEGIN USER NKEY SEED-----\n{SEED}\n------END USER NKEY SEED------\n"
    )
    assert read_creds(str(path)) == ("eyJ.abc", SEED)
    words = hello(NatsOptions(creds_file=str(path)), Endpoint("h", 1), INFO, tls=False)
    assert words["jwt"] == "eyJ.abc"
    assert "nkey" not in words


@pytest.mark.parametrize("text", ["", "-----BEGIN NATS USER JWT-----\nx\n------END NATS USER JWT------\n"])
def test_what_is_no_credentials_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "user.creds"
    path.write_text(text)
    with pytest.raises(Denied, match="not a credentials file"):
        read_creds(str(path))


def test_tls_files_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "bad.pem").write_text("nothing")
    for options in (
        NatsOptions(tls_ca_file=str(tmp_path / "bad.pem")),
        NatsOptions(tls_cert_file=str(tmp_path / "no.pem")),
    ):
        with pytest.raises(DeclarationError, match="TLS files cannot be used"):
            tls_context(options)
