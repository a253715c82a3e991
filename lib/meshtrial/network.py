"""Requests to our own processes, which never use a proxy of the user's environment.

A proxy (``http_proxy``, ``ALL_PROXY``) is meant for external addresses. urllib and other programs that read these
variables would send requests to loopback through it, too.
"""

import http.client
import os
import urllib.request

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def ask(request: str | urllib.request.Request, timeout_s: float) -> http.client.HTTPResponse:
    """Return the response, which the caller closes; errors are those of :func:`urllib.request.urlopen`."""
    response: http.client.HTTPResponse = _DIRECT.open(request, timeout=timeout_s)
    return response


def environment() -> dict[str, str]:
    """Return this process's environment without proxies, for child processes that talk only to each other."""
    return {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}


def url(address: str, rest: str, scheme: str = "http") -> str:
    """Return the URL of ``port/path`` at an address; IPv6 addresses get brackets (RFC 3986, section 3.2.2)."""
    return f"{scheme}://[{address}]:{rest}" if ":" in address else f"{scheme}://{address}:{rest}"
