"""What files that are about to be published tell of the machine that made them, for whoever publishes them to judge.

Records of today hold no path; older ones do, and a record is never changed. What a reader needs stays: CPU, kernel,
versions, the cluster's and its nodes' names, to which placements refer.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

# Folders that people and sessions have; those of systems (/usr, /etc) are the same on every machine.
_PATH = re.compile(r"""(?<![\w.:/-])/(?:home|Users|root|tmp|private|mnt|media|srv|Volumes)/[^\s"'`,;:|<>)\]}]+""")
_TEXTS = {".json", ".txt", ".log", ".html", ".md", ".yaml"}


def told(files: Iterable[Path]) -> list[str]:
    """What files name of a machine, a line for each kind of file and field: paths, and a kubeconfig's context."""
    counted: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], str] = {}
    for path in files:
        if path.suffix in _TEXTS:
            found = {(path.name, name): said for name, said in _said(path)}
            counted.update(found.keys())
            examples = found | examples
    lines = []
    for (file, name), times in counted.items():
        where = f"{file} ({times} of them)" if times > 1 else file
        what = "the context of a kubeconfig" if name == "context" else "a file of the machine that made it"
        lines.append(f"{where} names {what}: {name}{'=' * bool(name)}{examples[file, name]}")
    return lines


def _said(path: Path) -> Iterator[tuple[str, str]]:
    """What a file says of a machine, with the field that says it; without one where the file has none."""
    text = path.read_text(encoding="utf-8", errors="replace")
    leaves: Iterable[tuple[str, str]] = [("", text)]
    if path.suffix == ".json":
        with suppress(ValueError):  # what is damaged is looked at as text
            leaves = list(_leaves(json.loads(text), ""))
    for name, said in leaves:
        if name == "context" and said:
            yield name, said
        elif found := _PATH.search(said):
            yield name, found.group()


def _leaves(data: Any, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _leaves(value, str(key))
    elif isinstance(data, list):
        for value in data:
            yield from _leaves(value, name)
    elif isinstance(data, str):
        yield name, data
