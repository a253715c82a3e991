"""Probes on the wire: how a listener answers the right peer, the wrong peer, and plain text.

Each probe opens a new connection, because an open connection keeps the policy under which it was opened. With TLS 1.3
a server refuses a client certificate only after the client's handshake is done, so every probe waits for an answer.
"""

import http.client
import json
import socket
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass, replace
from typing import Any

from meshtrial import network
from meshtrial.envoy.bootstrap import Json
from meshtrial.envoy.keys import Identity
from meshtrial.errors import TestbedError

_H2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
_TIMEOUT_S = 3.0
# An uncompressed message of length 0 (gRPC over HTTP/2, "Length-Prefixed-Message").
_EMPTY_MESSAGE = b"\x00" * 5
_NO_GRPC = -1


@dataclass(frozen=True)
class Answer:
    """Result of a probe."""

    accepted: bool  # True if the peer spoke the protocol with us
    peer: str  # SPIFFE name in the peer's certificate; empty if there is none
    detail: str  # for the report


@dataclass(frozen=True)
class HttpAnswer:
    """Status and headers of one plain HTTP request; status 0 if the connection failed."""

    status: int
    headers: dict[str, str]
    detail: str


def speak_h2(address: str, port: int, identity: Identity | None = None, *, present: bool = True) -> Answer:
    """Open HTTP/2 and wait for its SETTINGS: over TLS with an identity, in plain text without one.

    The identity's authority verifies the server; ``present`` decides whether the identity's certificate is presented.
    """
    peer = ""
    try:
        with socket.create_connection((address, port), timeout=_TIMEOUT_S) as raw:
            if identity is None:
                return _settings(raw, "")
            with _client_context(identity, present).wrap_socket(raw) as secure:
                peer = _uri(secure)
                return _settings(secure, peer)
    except OSError as error:
        return Answer(False, peer, _reason(error))


def http_get(
    address: str,
    port: int,
    path: str = "/",
    headers: tuple[tuple[str, str], ...] = (),
    method: str = "GET",
    body: bytes | None = None,
) -> HttpAnswer:
    """Send one plain HTTP/1.1 request on a new connection."""
    connection = http.client.HTTPConnection(address, port, timeout=_TIMEOUT_S)
    try:
        connection.request(method, path, body, dict(headers) | {"Connection": "close"})
        answer = connection.getresponse()
        answer.read()
        return HttpAnswer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, f"HTTP {answer.status}")
    except (OSError, http.client.HTTPException) as error:
        return HttpAnswer(0, {}, _reason(error))
    finally:
        connection.close()


def grpc_call(
    address: str, port: int, path: str, headers: tuple[tuple[str, str], ...] = (), method: str = "POST"
) -> HttpAnswer:
    """Send one gRPC call with an empty message through a proxy that accepts HTTP/1.1; ``status`` is gRPC's.

    A proxy refuses a gRPC call with HTTP 200 and ``grpc-status`` among the headers. The application's answer has its
    status in trailers, which HTTP/1.1 drops, so an answer without a status is status 0.
    """
    sent = (*headers, ("Content-Type", "application/grpc"), ("TE", "trailers"))
    answer = http_get(address, port, path, sent, method, _EMPTY_MESSAGE)
    status = answer.headers.get("grpc-status", "0")
    if answer.status != 200 or not status.isdigit():
        return replace(answer, status=_NO_GRPC)
    return replace(answer, status=int(status), detail=f"gRPC status {status}")


def ask_json(
    who: str,
    at: tuple[str, int],
    path: str,
    method: str = "GET",
    body: Json | list[Json] | None = None,
    timeout_s: float = _TIMEOUT_S,
) -> Json:
    """Return a JSON object from one of the project's own programs; TestbedError if it refuses or does not answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(network.url(at[0], f"{at[1]}{path}"), data, method=method)
    try:
        with network.ask(request, timeout_s) as answer:
            content: Json = json.load(answer)
            return content
    except urllib.error.HTTPError as error:
        raise TestbedError(f"{who}: {method} {path}: {error.read().decode(errors='replace')}") from None
    except (OSError, ValueError) as error:
        raise TestbedError(f"{who}: {method} {path} was not answered ({error})") from None


def _client_context(identity: Identity, present: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The caller compares the name in the URI SAN; only the chain is verified here.
    context.check_hostname = False
    context.load_verify_locations(identity.authority)
    if present:
        context.load_cert_chain(identity.certificate, identity.key)
    context.set_alpn_protocols(["h2"])
    return context


def _settings(sock: socket.socket, peer: str) -> Answer:
    sock.settimeout(_TIMEOUT_S)
    sock.sendall(_H2_PREFACE)
    head = b""
    while len(head) < 9:
        chunk = sock.recv(9 - len(head))
        if not chunk:
            return Answer(False, peer, "connection closed without an answer")
        head += chunk
    # Frame type 4 is SETTINGS (RFC 9113, section 6.5).
    if head[3] == 4:
        return Answer(True, peer, "HTTP/2 SETTINGS received")
    return Answer(False, peer, f"answered with something that is not HTTP/2: {head!r}")


def _uri(sock: ssl.SSLSocket) -> str:
    certificate = sock.getpeercert() or {}
    names: Any = certificate.get("subjectAltName", ())
    return next((str(value) for kind, value in names if kind == "URI"), "")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError) and error.reason:
        return str(error.reason).lower().replace("_", " ")
    return str(error) or type(error).__name__
