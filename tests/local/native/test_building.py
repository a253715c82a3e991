"""Build the native programs with the real compiler."""

import signal
import sys
from pathlib import Path

import pytest
from interrupted_build import interrupt

from meshtrial import native

pytestmark = [pytest.mark.local, pytest.mark.timeout(300)]
_BUILD = """
import sys
from pathlib import Path
from meshtrial import paths
from meshtrial.native.__main__ import main
paths.CHECKOUT = Path(sys.argv[1])
sys.exit(main(["build"]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_build_leaves_nothing(tmp_path: Path, number: int) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "native").symlink_to(native.places.module_dir())
    changed = {"GOCACHE": str(tmp_path / "cache")}
    code, said = interrupt([sys.executable, "-c", _BUILD, str(tmp_path)], number, changed, compilers=1)
    assert code == 130
    assert said.startswith("native: stopped")
    assert sorted(path.name for path in (tmp_path / ".build").iterdir()) == ["bin", "native.lock"]
    assert list((tmp_path / ".build" / "bin").iterdir()) == []
