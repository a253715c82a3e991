"""What the documentation says of the verdict table, made from the columns that are declared in the code.

``PYTHONPATH=lib:tests .venv/bin/python -m documents`` writes it anew after a change of a column or a word.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_type_hints

from meshtrial import paths
from meshtrial.records.columns import VERDICTS
from meshtrial.records.schema import VerdictRow
from meshtrial.vocabulary import Warning, Word

SCHEMA = Path("docs", "schema", "export.schema.json")
PAGE = Path("data", "README.md")
TEXT = {"type": "string"}
TYPES: dict[Any, dict[str, Any]] = {
    str: TEXT,
    Word: {"enum": [*Word]},
    bool: {"type": "boolean"},
    int: {"type": "integer", "minimum": 0},
    int | None: {"type": ["integer", "null"]},
    float | None: {"type": ["number", "null"]},
    tuple[Warning, ...]: {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"code": TEXT, "message": TEXT},
            "required": ["code", "message"],
            "additionalProperties": False,
        },
    },
}
TABLE = re.compile(r"(?<=### verdicts\.json\n\n)(?:\|.*\n)+")


def schema(text: str) -> str:
    """The schema of an export, with the verdict rows as they are declared."""
    whole = json.loads(text)
    hints = get_type_hints(VerdictRow)
    whole["properties"]["verdicts"]["items"] = {
        "description": "one contrast, response and load",
        "type": "object",
        "properties": {name: {"description": one.meaning} | TYPES[hints[name]] for name, one in VERDICTS.items()},
        "required": [*VERDICTS],
        "additionalProperties": False,
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def page(text: str) -> str:
    """The description of the data, with the table of the verdicts' columns as they are declared."""
    units = {"": "", "response": "; in the response's stored unit"}
    rows = [f"| `{name}` | {one.meaning}{units[one.unit]} |\n" for name, one in VERDICTS.items()]
    return TABLE.sub("".join(["| column | meaning |\n", "|---|---|\n", *rows]), text)


MADE = {SCHEMA: schema, PAGE: page}


if __name__ == "__main__":
    for path, made in MADE.items():
        where = paths.CHECKOUT / path
        where.write_text(made(where.read_text()))
