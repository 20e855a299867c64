"""How to reach NATS servers, and as whom."""

from __future__ import annotations

import base64
import re
import ssl
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec
import nkeys

from tutti.bus.nats.protocol import ServerInfo
from tutti.errors import DeclarationError, Denied
from tutti.limits import QUEUE_SILENCE_SECONDS

_SECRET: Final = frozenset({"password", "token", "nkey_seed"})


class NatsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where the servers are and how to be let in. Give credentials in one way only: in the URL, as user and password,
    as a token, as an NKEY seed, or as a `.creds` file."""

    urls: tuple[str, ...] = ("nats://127.0.0.1:4222",)  # nats:// or tls://, tried in this order
    user: str = ""
    password: str = ""
    token: str = ""
    nkey_seed: str = ""  # "SU…"
    creds_file: str = ""  # a user's JWT and seed
    tls_ca_file: str = ""  # who signed the servers' certificates, if not the machine's authorities
    tls_cert_file: str = ""  # our own certificate, if the servers ask for one
    tls_key_file: str = ""
    tls_hostname: str = ""  # the name in the servers' certificates, if it is not the host in the URL
    tls_handshake_first: bool = False  # the servers expect TLS before their first word
    name: str = "tutti"  # shown in the servers' lists of connections
    inbox_prefix: str = "_INBOX"
    durable: bool = True  # refuse servers that are known to lose what they acknowledged
    synced: bool | None = None  # the operator's own statement that every server has `sync_interval: always`
    monitor_url: str = ""  # where /varz can be read, to see it with our own eyes; several are separated by commas
    connect_timeout: float = 10.0  # seconds until `start` gives up
    request_timeout: float = 5.0  # seconds for the servers' management answers
    ping_interval: float = 5.0  # seconds; a connection that misses two answers is dead
    queue_silence: float = QUEUE_SILENCE_SECONDS  # the same in every process that takes from a queue
    reconnect_max_delay: float = 2.0  # seconds between two rounds over all servers

    def __repr__(self) -> str:
        shown = (
            f"{name}={'…' if name in _SECRET else self._shown_urls() if name == 'urls' else getattr(self, name)!r}"
            for name in self.__struct_fields__
            if getattr(self, name)
        )
        return f"NatsOptions({', '.join(shown)})"

    def _shown_urls(self) -> str:
        return repr(tuple(str(Endpoint.parse(url)) for url in self.urls))


class Endpoint(msgspec.Struct, frozen=True):
    """One server, as a URL or another server named it."""

    host: str
    port: int
    tls: bool = False
    user: str = ""
    password: str = ""

    @classmethod
    def parse(cls, url: str, *, tls: bool = False) -> Endpoint:
        try:
            parts = urlsplit(url if "://" in url else f"nats://{url}")
            port = parts.port or 4222
        except ValueError as error:
            raise DeclarationError(f"{url!r} is not the address of a NATS server: {error}", hint=_URL_HINT) from None
        if parts.scheme not in {"nats", "tls"} or not parts.hostname:
            raise DeclarationError(f"{url!r} is not the address of a NATS server", hint=_URL_HINT)
        return cls(
            parts.hostname,
            port,
            tls or parts.scheme == "tls",
            unquote(parts.username or ""),
            unquote(parts.password or ""),
        )

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'tls' if self.tls else 'nats'}://{host}:{self.port}"


_URL_HINT: Final = "write nats://host:4222 or tls://host:4222, with user:password@ before the host if need be"


def endpoints(given: tuple[str, ...]) -> list[Endpoint]:
    urls = [part.strip() for url in given for part in url.split(",") if part.strip()]
    if not urls:
        raise DeclarationError("no server to connect to", hint=_URL_HINT)
    return [Endpoint.parse(url) for url in urls]


def tls_context(options: NatsOptions) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.tls_ca_file or None)
        if options.tls_cert_file:
            context.load_cert_chain(options.tls_cert_file, options.tls_key_file or None)
    except OSError as error:  # ssl.SSLError is one
        files = ", ".join(filter(None, (options.tls_ca_file, options.tls_cert_file, options.tls_key_file)))
        raise DeclarationError(
            f"the TLS files cannot be used ({files}): {error}", hint="they must be PEM files"
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def hello(options: NatsOptions, endpoint: Endpoint, info: ServerInfo, *, tls: bool) -> dict[str, object]:
    """What CONNECT says to this server."""
    words: dict[str, object] = {
        "verbose": False,
        "pedantic": False,
        "tls_required": tls,
        "name": options.name,
        "lang": "python",
        "version": "tutti",
        "protocol": 1,
        "echo": True,
        "headers": True,
        "no_responders": True,
    }
    return words | _credentials(options, endpoint, info)


def _credentials(options: NatsOptions, endpoint: Endpoint, info: ServerInfo) -> dict[str, object]:
    if options.creds_file:
        jwt, seed = read_creds(options.creds_file)
        return {"jwt": jwt, "sig": _signed(seed, info.nonce)}
    if options.nkey_seed:
        return {"nkey": _public_key(options.nkey_seed), "sig": _signed(options.nkey_seed, info.nonce)}
    if options.token:
        return {"auth_token": options.token}
    if options.user:
        return {"user": options.user, "pass": options.password}
    if endpoint.user and not endpoint.password:
        return {"auth_token": endpoint.user}
    if endpoint.user:
        return {"user": endpoint.user, "pass": endpoint.password}
    return {}


_SECTION: Final = re.compile(r"-----BEGIN ([^-]+)-----\s*(\S+)\s*-+END \1-+")


def read_creds(path: str) -> tuple[str, str]:
    """The JWT and the seed in a `.creds` file."""
    try:
        text = Path(path).read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        raise Denied(f"the credentials file {path} cannot be read: {error}", hint="check creds_file") from None
    sections: dict[str, str] = dict(_SECTION.findall(text))
    if not {"NATS USER JWT", "USER NKEY SEED"} <= sections.keys():
        raise Denied(
            f"{path} is not a credentials file",
            hint="it must hold a NATS USER JWT and a USER NKEY SEED, as nsc writes them",
        )
    return sections["NATS USER JWT"], sections["USER NKEY SEED"]


def _keys(seed: str) -> nkeys.KeyPair:
    try:
        return nkeys.from_seed(bytearray(seed, "ascii"))
    except (nkeys.NkeysError, ValueError) as error:
        raise Denied("the NKEY seed is not valid", hint="a user's seed begins with SU and has 58 characters") from error


def _public_key(seed: str) -> str:
    public: bytearray = _keys(seed).public_key
    return public.decode("ascii")


def _signed(seed: str, nonce: str) -> str:
    signature: bytes = _keys(seed).sign(nonce.encode())
    return base64.urlsafe_b64encode(signature).decode("ascii").rstrip("=")
