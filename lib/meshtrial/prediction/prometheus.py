"""Queries of a Prometheus, or of what answers its API (Thanos, Mimir, VictoriaMetrics): instant vectors only.

Every failure is one line. A bearer token is sent to the given address only, never along with a redirection.
"""

import contextlib
import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import msgspec

from meshtrial import network
from meshtrial.decoding import NotTextError, text_of
from meshtrial.errors import MeshtrialError, UsageError
from meshtrial.typed import shortened

LARGEST_ANSWER = 256 * 2**20  # bytes; an answer of 10,000 series with all labels has about 5 MiB
_TOO_MANY, _QUERY_FAILED, _UNAVAILABLE = 429, 422, 503


@dataclass(frozen=True)
class Sample:
    """A series' value at the time of a query."""

    labels: Mapping[str, str]
    value: float


class Prometheus:
    """A Prometheus by its address, which may have a path; `token` is sent as a bearer token."""

    def __init__(self, address: str, token: str = "", timeout_s: float = 30.0) -> None:
        try:
            parts = urlsplit(address)
            has_port = parts.port is None or parts.port > 0
        except ValueError:
            parts, has_port = urlsplit(""), False
        if parts.scheme not in ("http", "https") or not parts.hostname or not has_port or not address.isascii():
            raise UsageError(f"prometheus = {shortened(address)}: must be an address such as http://localhost:9090")
        if parts.username is not None or parts.query or parts.fragment:
            raise UsageError("prometheus: must not contain a password or a query; a bearer token is read from a file")
        if not 0 < timeout_s <= 3600:
            raise UsageError(f"timeout = {timeout_s:g}: must be more than 0, at most 3600 seconds")
        self.address = address.rstrip("/")
        self.timeout_s = timeout_s
        self.warnings: dict[str, None] = {}  # from all answers, e.g. that a store was not available
        self._token = token
        self._is_here = parts.hostname == "localhost" or _is_loopback(parts.hostname)

    def query(self, promql: str, at_s: float | None = None) -> tuple[Sample, ...]:
        """Return the series of an instant vector, at a time in seconds since 1970 or now.

        UsageError if the address is not that of a Prometheus or wants another token; MeshtrialError if it does not
        answer in time.
        """
        given = {"query": promql, "timeout": f"{self.timeout_s:g}s"} | ({} if at_s is None else {"time": f"{at_s:.3f}"})
        answer = _answer(self._ask(f"{self.address}/api/v1/query?{urlencode(given)}"))
        if answer is None:
            raise self._other("the answer to /api/v1/query is not that of a Prometheus")
        if answer.data is None or answer.status != "success":
            raise MeshtrialError(f"{self.address} did not answer a query: {shortened(answer.error, 200)}")
        self.warnings |= dict.fromkeys(answer.warnings)
        return tuple(Sample(one.metric, float(one.value[1])) for one in answer.data.result)

    def _ask(self, url: str) -> bytes:
        request = urllib.request.Request(url, headers={"Accept": "application/json"})
        if self._token:
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        wait_s = self.timeout_s + 1  # so that its own report on a timeout comes first
        try:
            opened = network.ask(request, wait_s) if self._is_here else urllib.request.urlopen(request, timeout=wait_s)
            with opened as response:
                body: bytes = response.read(LARGEST_ANSWER + 1)
        except urllib.error.HTTPError as error:
            raise self._refusal(error) from None
        except urllib.error.URLError as error:
            raise self._unreachable(error.reason) from None
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from None
        if len(body) > LARGEST_ANSWER:
            raise MeshtrialError(f"{self.address} answered with more than {LARGEST_ANSWER >> 20} MiB")
        return body

    def _refusal(self, error: urllib.error.HTTPError) -> MeshtrialError:
        with error:
            body = error.read(10_000)
        if error.code in (401, 403):
            why = "refuses this token" if self._token else "needs a token"
            return UsageError(f"{self.address} {why} ({error.code}); give a file with a bearer token as --token-file")
        if (answer := _answer(body)) is None:
            if error.code not in (_TOO_MANY, 500, 502, 503, 504):
                return self._other(f"/api/v1/query answers {error.code}")
            return MeshtrialError(f"{self.address} is not available ({error.code} {error.reason}); try again later")
        if answer.errorType in ("timeout", "canceled"):
            return self._slow()
        if error.code in (_QUERY_FAILED, _UNAVAILABLE):
            hint = "choose a shorter --range if it is too large"
            return MeshtrialError(f"{self.address} could not answer a query ({shortened(answer.error, 200)}); {hint}")
        return MeshtrialError(f"{self.address} answers {error.code}: {shortened(answer.error, 200)}")

    def _unreachable(self, reason: object) -> MeshtrialError:
        if isinstance(reason, ssl.SSLCertVerificationError):
            remedy = "name the file of its authority in SSL_CERT_FILE"
            return UsageError(f"{self.address}: its certificate is not trusted ({reason.verify_message}); {remedy}")
        if isinstance(reason, ssl.SSLError):
            return UsageError(f"{self.address}: TLS failed ({reason.reason}); is it an address of http:// ?")
        if isinstance(reason, TimeoutError):
            return self._slow()
        why = getattr(reason, "strerror", None) or reason
        return MeshtrialError(f"{self.address} cannot be reached ({why}); is its port forwarded to this machine?")

    def _slow(self) -> MeshtrialError:
        remedy = "choose a shorter --range or a longer --timeout"
        return MeshtrialError(f"{self.address} did not answer a query within {self.timeout_s:g} s; {remedy}")

    def _other(self, why: str) -> UsageError:
        return UsageError(f"{self.address}: {why}; give the address to which /api/v1/query can be added")


def read_token(path: Path) -> str:
    """Return the token in a file; UsageError if it cannot be read or is not one word."""
    try:
        token = text_of(path.expanduser().read_bytes()).strip()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    except NotTextError:
        token = ""
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(f"{path}: must contain a bearer token and nothing else")
    return token


@dataclass(frozen=True)
class _Series:
    metric: dict[str, str]
    value: tuple[float, str]


@dataclass(frozen=True)
class _Data:
    result: tuple[_Series, ...]


@dataclass(frozen=True)
class _Answer:
    """An answer in the format of the API; other fields are not needed."""

    status: str
    data: _Data | None = None
    errorType: str = ""
    error: str = ""
    warnings: tuple[str, ...] = field(default=())


def _answer(body: bytes) -> _Answer | None:
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.json.decode(body, type=_Answer)
    return None


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
