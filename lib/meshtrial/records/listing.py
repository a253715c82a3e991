"""What recorded studies there are: the samples that come with the checkout, and those recorded or unpacked here."""

from pathlib import Path

from meshtrial import paths
from meshtrial.records import packed
from meshtrial.records.store import PLAN

SAMPLE = paths.CHECKOUT / "data" / "sample"


def listing() -> dict[str, Path]:
    """``<study>-<UTC>-<hash>`` to folder or packed file, the samples first, then the newest; each once."""
    recorded = _folders(paths.studies_root())
    # A sample that was unpacked once is opened where it lies.
    shipped = {name: recorded.get(name, path) for name, path in samples().items()}
    return shipped | {name: path for name, path in recorded.items() if name not in shipped}


def samples() -> dict[str, Path]:
    """Those of the checkout alone, folders before packed ones."""
    return _folders(SAMPLE) | {path.stem: path for path in sorted(SAMPLE.glob(f"*{packed.SUFFIX}"))}


def recorded_in(root: Path, study: str = "*") -> list[Path]:
    """The folders of recorded studies, of all or of those of one name, the oldest of each name first."""
    return sorted(path.parent for path in root.glob(f"{study}/*/{PLAN}"))


def _folders(root: Path) -> dict[str, Path]:
    newest_first = sorted(recorded_in(root), key=lambda path: path.name, reverse=True)
    return {f"{path.parent.name}-{path.name}": path for path in newest_first}
