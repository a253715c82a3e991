"""A real Prometheus on loopback, which scrapes what a test names."""

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from waiting import wait_for

from meshtrial import network
from meshtrial.testbed.local.sockets import free_ports

HERE = "127.0.0.1"
_PROGRAM = shutil.which("prometheus")
needs_prometheus = pytest.mark.skipif(_PROGRAM is None, reason="no Prometheus on PATH: apt install prometheus")


@contextmanager
def scraping(folder: Path, *jobs: Mapping[str, Any]) -> Iterator[str]:
    """The address of a Prometheus that scrapes these jobs every second."""
    config = folder / "prometheus.yml"
    config.write_text(yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": list(jobs)}))
    (port,) = free_ports(HERE)
    files = (f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}")
    listen = f"--web.listen-address={HERE}:{port}"
    with subprocess.Popen([str(_PROGRAM), *files, listen, "--log.level=error"]) as program:
        try:
            address = f"http://{HERE}:{port}"
            wait_for(lambda: answers(f"{address}/-/ready"))
            yield address
        finally:
            program.kill()


def answers(address: str) -> bool:
    """Whether a request is answered."""
    try:
        with network.ask(address, 5):
            return True
    except OSError:
        return False
