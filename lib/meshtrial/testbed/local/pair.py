"""The two sidecars under construction: what features add to before the proxies start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from meshtrial.envoy.bootstrap import Json, Proxy
from meshtrial.envoy.tokens import Tokens, make_tokens
from meshtrial.testbed.local.deployment import Endpoint, Prover


@dataclass
class Pair:
    """The two proxies under construction; features add to the lists before the proxies start.

    Attributes
    ----------
    wire : tuple of (str, int)
        Where the server's sidecar listens.
    apps : sequence of (str, int)
        The application's endpoint for each protocol of the load.
    inbound_filters : list
            HTTP filters of the server's sidecar, in order.
    """

    client: Proxy
    server: Proxy
    entry: tuple[str, int]
    wire: tuple[str, int]
    apps: Sequence[Endpoint]
    inbound_filters: list[Json] = field(default_factory=list)
    access_logs: dict[str, list[Json]] = field(default_factory=lambda: {"client": [], "server": []})
    tracing: dict[str, Json] = field(default_factory=dict)
    headers: list[tuple[str, str]] = field(default_factory=list)
    provers: list[Prover] = field(default_factory=list)
    _tokens: Tokens | None = None

    def tokens(self) -> Tokens:
        """The deployment's tokens, made on first use and sent with every request from then on."""
        if self._tokens is None:
            self._tokens = make_tokens()
            self.headers += self._tokens.headers
        return self._tokens
