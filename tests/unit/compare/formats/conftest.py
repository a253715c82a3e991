"""Outputs of real load generators, shortened, and a reader for them, changed or unchanged."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from refused import refused as expected

from meshtrial import paths
from meshtrial.compare.formats import read_file
from meshtrial.load.files import InputFileError
from meshtrial.load.recorded import Recorded

FIXTURES = paths.CHECKOUT / "tests" / "fixtures" / "formats"


@pytest.fixture
def fixtures() -> Path:
    return FIXTURES


@pytest.fixture
def fixture_text() -> Callable[[str], str]:
    return lambda name: (FIXTURES / name).read_text()


@pytest.fixture
def whole(request: pytest.FixtureRequest) -> Any:
    """The document of the fixture that a module's ``WHOLE`` names, to be changed."""
    return json.loads((FIXTURES / request.module.WHOLE).read_text())


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Recorded]:
    """Read a fixture by its name, or content under a neutral name."""

    def run(content: str | bytes | dict[str, Any] | list[Any], sample_floor: float = 1.0) -> Recorded:
        if isinstance(content, str) and (FIXTURES / content[:100]).is_file():
            return read_file(FIXTURES / content, sample_floor)
        path = tmp_path / "input"
        data = content if isinstance(content, str | bytes) else json.dumps(content)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return read_file(path, sample_floor)

    return run


@pytest.fixture
def refused(read: Callable[..., Recorded], tmp_path: Path) -> Callable[..., str]:
    """Return why content is refused; the error names the file too."""

    def run(content: str | bytes | dict[str, Any] | list[Any]) -> str:
        with expected(InputFileError) as found:
            read(content)
        assert found.value.path == tmp_path / "input"
        return found.value.reason

    return run
