"""What recorded studies there are: the samples that come with the checkout, and those recorded or unpacked here."""

from __future__ import annotations

from pathlib import Path

from meshtrial import paths
from meshtrial.records import packed

SAMPLE = paths.CHECKOUT / "data" / "sample"


def listing() -> dict[str, Path]:
    """``<study>-<UTC>-<hash>`` to folder or packed file, the samples first, then the newest; each once."""
    recorded = _folders(paths.studies_root())
    # A sample that was unpacked once is opened where it lies.
    found = {name: recorded.get(name, path) for name, path in samples().items()}
    return found | {name: path for name, path in recorded.items() if name not in found}


def samples() -> dict[str, Path]:
    """Those of the checkout alone, folders before packed ones."""
    return _folders(SAMPLE) | {path.stem: path for path in sorted(SAMPLE.glob(f"*{packed.SUFFIX}"))}


def _folders(root: Path) -> dict[str, Path]:
    folders = [path.parent for path in root.glob("*/*/plan.json")]
    return {f"{path.parent.name}-{path.name}": path for path in sorted(folders, key=lambda p: p.name, reverse=True)}
