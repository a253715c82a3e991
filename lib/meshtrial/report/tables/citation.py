"""How a study is cited: by its title, its date, the digest of its plan and that of its verdicts, and the software.

Whoever measured it is not recorded, so no author is made up for the study. What is said of the software stands in
CITATION.cff and nowhere else; the wheel carries that file.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from meshtrial import __version__, paths
from meshtrial.errors import MeshtrialError
from meshtrial.records.dataset import StudyData
from meshtrial.report.markup import Fragment, part

FILE = "CITATION.cff"
# What TeX reads as more than itself, and how it is written.
_TEX = {sign: f"\\{sign}" for sign in "&%$#_{}"} | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}"}
_TEX["^"] = r"\textasciicircum{}"


@cache
def software() -> Mapping[str, Any]:
    """CITATION.cff: of the installed package, or of the checkout.

    Raises
    ------
    MeshtrialError
        Where neither has it.
    """
    for folder in (Path(paths.__file__).parent, paths.CHECKOUT):
        try:
            found = yaml.safe_load((folder / FILE).read_text(encoding="utf-8"))
        except OSError:
            continue
        except yaml.YAMLError as error:
            raise MeshtrialError(f"{folder / FILE}: is not YAML ({error}); restore it") from None
        if isinstance(found, dict):
            return found
    raise MeshtrialError(f"{FILE}: is in neither the package nor the checkout; install meshtrial again")


def verdicts_sha256(data: StudyData) -> str:
    """Digest of the verdict rows: what `verify` compares a re-analysis with."""
    body = json.dumps([row.to_dict() for row in data.verdicts], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(body.encode()).hexdigest()


def citation(data: StudyData) -> Fragment:
    """How to cite a study: a sentence, and BibTeX for the study and for the software."""
    study, plan = data.plan.study, data.plan.sha256
    first = min(data.runs, key=lambda run: run.start_unix_s, default=None)
    day = first.started_at[:10] if first is not None else ""
    about = software()
    authors = " and ".join(_name(author) for author in about["authors"])
    made = f"{about['title']} {__version__}"
    recorded = f"recorded {day} with {made}" if day else f"planned with {made}"
    digests = f"plan SHA-256 {plan}, verdicts SHA-256 {verdicts_sha256(data)}"
    sentence = f"{study.title}. Study {study.name}, {recorded} ({authors}, {about['license']}); {digests}."
    fields = {
        "title": f"{{{_tex(study.title)}}}",
        "year": day[:4],
        "howpublished": _tex(f"Study {study.name}, {recorded}"),
        "note": _tex(f"{digests[0].upper()}{digests[1:]}"),
    }
    program = {
        "author": f"{{{_tex(authors)}}}",
        "title": f"{{{_tex(about['title'])}}}",
        "version": __version__,
        "note": _tex(about["abstract"]),
    }
    key = _key(f"{about['title']}-{study.name}-{plan[:8]}")
    entries = f"{_entry('misc', key, fields)}\n\n{_entry('software', _key(about['title']), program)}"
    return Fragment(part("citation", sentence, entries), f"{sentence}\n\n{entries}")


def _name(author: Mapping[str, str]) -> str:
    return author.get("name") or f"{author['given-names']} {author['family-names']}"


def _entry(kind: str, key: str, fields: Mapping[str, str]) -> str:
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items() if value]
    return "\n".join([f"@{kind}{{{key},", *lines, "}"])


def _key(text: str) -> str:
    return re.sub(r"[^\w.:-]", "-", text, flags=re.ASCII)


def _tex(text: str) -> str:
    return "".join(_TEX.get(sign, sign) for sign in " ".join(str(text).split()))
