"""An HTTP server on loopback that answers like a Prometheus: with recorded answers, or with anything else."""

import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, urlsplit

from meshtrial import paths
from meshtrial.envoy.keys import Identity

RECORDED = paths.CHECKOUT / "tests" / "fixtures" / "prometheus"
NOTHING = {"status": "success", "data": {"resultType": "vector", "result": []}}
Answer = Callable[[str, Mapping[str, str]], tuple[int, bytes]]


@contextmanager
def answering(answer: Answer, identity: Identity | None = None) -> Iterator[str]:
    """The address of a server; ``answer`` has a query, or a path without one, and the headers.

    It returns status and body; that of a redirection is the address.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            (query,) = parse_qs(urlsplit(self.path).query).get("query", [self.path])
            status, body = answer(query, dict(self.headers))
            self.send_response(status)
            if status == HTTPStatus.FOUND:
                self.send_header("Location", body.decode())
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if identity is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(identity.certificate, identity.key)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        serving = Thread(target=server.serve_forever, args=(0.05,))
        serving.start()
        try:
            yield f"{'https' if identity else 'http'}://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            serving.join()


def recorded(name: str, changes: Mapping[str, object] | None = None) -> Answer:
    """Answer as the Prometheus of a recording did, except for queries that contain a key of ``changes``."""
    answers = json.loads((RECORDED / f"{name}.json").read_text())

    def answer(query: str, _: Mapping[str, str]) -> tuple[int, bytes]:
        for part, other in (changes or {}).items():
            if part in query:
                return 200, json.dumps(other).encode()
        # A query that is not in the recording has no answer.
        return 200, json.dumps(answers.get(query, NOTHING)).encode()

    return answer
