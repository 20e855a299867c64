"""Who is let in: passwords, tokens, NKEYs, credentials files, TLS; and who is not, with a reason."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import secrets
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import nkeys
import pytest

from tests.integration.nats_server import NatsServer
from tutti.bus.nats import NatsOptions, NatsTransport
from tutti.bus.port import StreamSpec
from tutti.errors import DeclarationError, Denied, Refused, TuttiError, Unreachable
from tutti.model.subjects import Layout

LAYOUT = Layout("t")
SPEC = StreamSpec(LAYOUT.event_stream("log"), (LAYOUT.event_subjects("log"),))


@contextlib.asynccontextmanager
async def running(folder: Path, extra: str) -> AsyncIterator[NatsServer]:
    server = NatsServer(folder, extra=extra)
    await server.start()
    try:
        yield server
    finally:
        server.kill()


@contextlib.asynccontextmanager
async def connected(options: NatsOptions) -> AsyncIterator[NatsTransport]:
    transport = NatsTransport(options, LAYOUT)
    await transport.start()
    try:
        yield transport
    finally:
        await transport.close()


def options(url: str, **more: object) -> NatsOptions:
    return NatsOptions(urls=(url,), durable=False, connect_timeout=1.5, **more)  # type: ignore[arg-type]  # any of them


async def admitted(url: str, **more: object) -> bool:
    """In, and able to work."""
    async with connected(options(url, **more)) as transport:
        await transport.ensure_stream(SPEC)
        return (await transport.append("t.event.log.a", {}, b"", timeout=5.0)).sequence > 0


async def refused(url: str, kind: type[TuttiError] = Denied, **more: object) -> str:
    with pytest.raises(kind) as raised:
        await admitted(url, **more)
    return str(raised.value)


async def test_user_and_password(tmp_path: Path) -> None:
    async with running(tmp_path, 'authorization { user: anna, password: "s3cret/:@" }') as server:
        assert await admitted(server.url, user="anna", password="s3cret/:@")
        assert await admitted(server.url.replace("//", "//anna:s3cret%2F%3A%40@"))
        assert "Authorization Violation" in await refused(server.url, user="anna", password="wrong")
        assert "credentials" in await refused(server.url)


async def test_token(tmp_path: Path) -> None:
    async with running(tmp_path, "authorization { token: t0ken }") as server:
        assert await admitted(server.url, token="t0ken")
        assert await admitted(server.url.replace("//", "//t0ken@"))
        assert "Authorization Violation" in await refused(server.url, token="other")


def seed(kind: int) -> str:
    text: bytes = nkeys.encode_seed(secrets.token_bytes(32), kind)
    return text.decode()


def public(of: str) -> str:
    key: bytearray = nkeys.from_seed(bytearray(of, "ascii")).public_key
    return key.decode()


async def test_nkey(tmp_path: Path) -> None:
    own, stranger = seed(nkeys.PREFIX_BYTE_USER), seed(nkeys.PREFIX_BYTE_USER)
    async with running(tmp_path, f"authorization {{ users: [ {{ nkey: {public(own)} }} ] }}") as server:
        assert await admitted(server.url, nkey_seed=own)
        assert "Authorization Violation" in await refused(server.url, nkey_seed=stranger)
        assert "seed is not valid" in await refused(server.url, nkey_seed="SUNOTASEED")


def jwt(issuer_seed: str, subject: str, nats_claims: dict[str, object]) -> str:
    def part(value: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    claims: dict[str, object] = {
        "jti": secrets.token_hex(16), "iat": 1_700_000_000, "iss": public(issuer_seed), "sub": subject, "name": "test",
        "nats": {**nats_claims, "version": 2},
    }  # fmt: skip
    signed = f"{part({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{part(claims)}"
    signature: bytes = nkeys.from_seed(bytearray(issuer_seed, "ascii")).sign(signed.encode())
    return f"{signed}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


def written_creds(path: Path, user_jwt: str, user_seed: str) -> str:
    path.write_text(
        f"-----BEGIN NATS USER JWT-----\n{user_jwt}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user_seed}\n------END USER NKEY SEED------\n"
    )
    return str(path)


async def test_credentials_file(tmp_path: Path) -> None:
    operator, account = seed(nkeys.PREFIX_BYTE_OPERATOR), seed(nkeys.PREFIX_BYTE_ACCOUNT)
    user, stranger = seed(nkeys.PREFIX_BYTE_USER), seed(nkeys.PREFIX_BYTE_ACCOUNT)
    unlimited = dict.fromkeys(("subs", "conn", "leaf", "imports", "exports", "data", "payload"), -1)
    storage = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
    account_jwt = jwt(
        operator, public(account), {"type": "account", "limits": {**unlimited, "wildcards": True, **storage}}
    )
    system = seed(nkeys.PREFIX_BYTE_ACCOUNT)
    system_jwt = jwt(operator, public(system), {"type": "account", "limits": {**unlimited, "wildcards": True}})
    extra = (
        f"operator: {jwt(operator, public(operator), {'type': 'operator', 'system_account': public(system)})}\n"
        f"resolver: MEMORY\nsystem_account: {public(system)}\n"
        f"resolver_preload: {{ {public(account)}: {account_jwt}, {public(system)}: {system_jwt} }}"
    )
    claims: dict[str, object] = {"type": "user", "subs": -1, "data": -1, "payload": -1}
    good = written_creds(tmp_path / "good.creds", jwt(account, public(user), claims), user)
    bad = written_creds(tmp_path / "bad.creds", jwt(stranger, public(user), claims), user)
    (tmp_path / "empty.creds").write_text("nothing")
    async with running(tmp_path, extra) as server:
        assert await admitted(server.url, creds_file=good)
        assert "Authorization Violation" in await refused(server.url, creds_file=bad)
        assert "not a credentials file" in await refused(server.url, creds_file=str(tmp_path / "empty.creds"))
        assert "cannot be read" in await refused(server.url, creds_file=str(tmp_path / "absent.creds"))


async def test_permissions_are_reported_where_they_hurt(tmp_path: Path) -> None:
    extra = """authorization { users: [
      { user: boss, password: x }
      { user: worker, password: x, permissions: {
        publish: { deny: ["t.event.log.secret", "$JS.API.STREAM.PURGE.>"] }, subscribe: { deny: "t.control.secret" } } }
    ] }"""
    async with running(tmp_path, extra) as server:
        assert await admitted(server.url, user="boss", password="x")
        async with connected(options(server.url, user="worker", password="x")) as transport:
            await transport.ensure_stream(SPEC)
            futures = [transport.append(f"t.event.log.n{n}", {}, b"", timeout=10.0) for n in range(50)]
            secret = transport.append("t.event.log.secret", {}, b"", timeout=10.0)
            futures += [transport.append(f"t.event.log.n{n}", {}, b"", timeout=10.0) for n in range(50)]
            async with asyncio.timeout(5):
                with pytest.raises(Refused, match="Permissions Violation"):
                    await secret
                assert len(await asyncio.gather(*futures)) == 100
                with pytest.raises(Denied, match="Permissions Violation"):
                    await transport.purge(SPEC.name, below=2)
                with pytest.raises(Denied, match="Permissions Violation"):
                    await transport.listen("t.control.secret")
            await (await transport.listen("t.control.open")).close()
            assert transport.status().connected


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a server's certificate for 127.0.0.1, a client's, and a stranger's authority."""
    folder = tmp_path_factory.mktemp("tls")
    for authority in ("ca", "stranger"):
        openssl(
            folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
            "-keyout", f"{authority}.key", "-out", f"{authority}.pem", "-subj", f"/CN={authority}",
        )  # fmt: skip
    for name, extension in (("server", "subjectAltName=IP:127.0.0.1"), ("client", "extendedKeyUsage=clientAuth")):
        (folder / f"{name}.ext").write_text(extension + "\n")
        openssl(
            folder, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}",
        )  # fmt: skip
        openssl(
            folder, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            "-days", "2", "-out", f"{name}.pem", "-extfile", f"{name}.ext",
        )  # fmt: skip
    return folder


def openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)  # noqa: S607  from the PATH


def tls(folder: Path, more: str = "") -> str:
    return f'tls {{ cert_file: "{folder}/server.pem", key_file: "{folder}/server.key", {more} }}'


async def test_tls(tmp_path: Path, certificates: Path) -> None:
    authority = str(certificates / "ca.pem")
    async with running(tmp_path, tls(certificates)) as server:
        secure = server.url.replace("nats://", "tls://")
        assert await admitted(secure, tls_ca_file=authority)
        assert await admitted(server.url, tls_ca_file=authority), "the server asks for TLS, so it gets it"
        assert "TLS failed" in await refused(secure)
        assert "TLS failed" in await refused(secure, tls_ca_file=str(certificates / "stranger.pem"))
        assert "TLS failed" in await refused(secure, tls_ca_file=authority, tls_hostname="other.example")
        assert "PEM files" in await refused(secure, DeclarationError, tls_ca_file=str(certificates / "absent.pem"))


async def test_tls_with_a_client_certificate(tmp_path: Path, certificates: Path) -> None:
    authority = str(certificates / "ca.pem")
    async with running(tmp_path, tls(certificates, f'ca_file: "{authority}", verify: true')) as server:
        own = {"tls_cert_file": str(certificates / "client.pem"), "tls_key_file": str(certificates / "client.key")}
        assert await admitted(server.url, tls_ca_file=authority, **own)
        assert "tls_cert_file" in await refused(server.url, tls_ca_file=authority)


async def test_tls_handshake_first(tmp_path: Path, certificates: Path) -> None:
    authority = str(certificates / "ca.pem")
    async with running(tmp_path, tls(certificates, "handshake_first: true")) as server:
        assert await admitted(server.url, tls_ca_file=authority, tls_handshake_first=True)


async def test_tls_where_there_is_none(tmp_path: Path) -> None:
    async with running(tmp_path, "") as server:
        assert "does not offer TLS" in await refused(server.url.replace("nats://", "tls://"))
        assert "127.0.0.1" in await refused(server.monitor_url.replace("http://", "nats://"), Unreachable)


async def test_a_private_inbox(tmp_path: Path) -> None:
    extra = """authorization { users: [ { user: a, password: x, permissions: {
        publish: { allow: ["t.>", "$JS.API.>"] }, subscribe: { allow: ["_INBOX_a.>"] } } } ] }"""
    async with running(tmp_path, extra) as server:
        assert await admitted(server.url, user="a", password="x", inbox_prefix="_INBOX_a")
