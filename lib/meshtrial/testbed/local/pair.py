"""The sidecars under construction, the client's and the server's: what features add to before the proxies start."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from meshtrial.envoy.bootstrap import Json, Proxy
from meshtrial.envoy.tokens import Tokens, make_tokens
from meshtrial.testbed.local.deployment import Prover
from meshtrial.testbed.local.sockets import Endpoint


@dataclass
class Pair:
    """The proxies under construction; features add to the lists before the proxies start."""

    clients: Sequence[Proxy]  # the client's sidecar; none where the server alone has one
    servers: Sequence[Proxy]  # the server's, one for each copy of the application; none where the client alone has one
    entry: tuple[str, int]  # what is called: the client's sidecar, or the first of the server's
    wires: Sequence[tuple[str, int]]  # where each of the server's sidecars listens
    apps: Sequence[Sequence[Endpoint]]  # each copy's endpoint for each protocol of the load
    inbound_filters: list[Json] = field(default_factory=list)  # HTTP filters of the server's sidecars, in order
    access_logs: dict[str, list[Json]] = field(default_factory=lambda: defaultdict(list))  # by the proxy's name
    tracing: dict[str, Json] = field(default_factory=dict)
    headers: list[tuple[str, str]] = field(default_factory=list)
    provers: list[Prover] = field(default_factory=list)
    policy: str = "ROUND_ROBIN"  # how the client's sidecar balances, as Envoy calls it
    _tokens: Tokens | None = None

    def tokens(self) -> Tokens:
        """The deployment's tokens, made on first use and sent with every request from then on."""
        if self._tokens is None:
            self._tokens = make_tokens()
            self.headers += self._tokens.headers
        return self._tokens
