"""How our own processes are addressed and asked: straight, whatever proxy the user's environment names.

A company's proxy (``http_proxy``, ``ALL_PROXY``) is for what lies outside. urllib sends requests to loopback through it
as well, and so do programs that read the same variables: neither is given the chance.
"""

from __future__ import annotations

import http.client
import os
import urllib.request

_STRAIGHT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def ask(request: str | urllib.request.Request, timeout_s: float) -> http.client.HTTPResponse:
    """The answer of a process of ours, which the caller closes; raises what :func:`urllib.request.urlopen` raises."""
    answer: http.client.HTTPResponse = _STRAIGHT.open(request, timeout=timeout_s)
    return answer


def environment() -> dict[str, str]:
    """This process's environment without any proxy in it, for children that speak to each other alone."""
    return {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}


def url(address: str, rest: str, scheme: str = "http") -> str:
    """The URL of ``port/path`` at an address; an address of IPv6 has brackets there (RFC 3986, section 3.2.2)."""
    return f"{scheme}://[{address}]:{rest}" if ":" in address else f"{scheme}://{address}:{rest}"
