"""The digest that says which verdicts a report, a page or a citation speaks of."""

from __future__ import annotations

import hashlib
import json

from meshtrial.records.dataset import StudyData


def verdicts_sha256(data: StudyData) -> str:
    """Digest of the verdict rows: what `verify` compares a re-analysis with."""
    body = json.dumps([row.to_dict() for row in data.verdicts], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(body.encode()).hexdigest()
