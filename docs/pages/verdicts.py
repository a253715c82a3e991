"""The verdicts, their columns, and the schema of an export, as the code declares them."""

import json
from typing import Any, get_type_hints

from meshtrial.records.columns import VERDICTS
from meshtrial.records.schema import VerdictRow
from meshtrial.report.checks import KINDS
from meshtrial.vocabulary import QUALIFIERS, VerdictLabel, Warning
from pages.tables import under

TEXT = {"type": "string"}
TYPES: dict[Any, dict[str, Any]] = {
    str: TEXT,
    VerdictLabel: {"enum": [*VerdictLabel]},
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
    return under(text, "### verdicts.json", [(f"`{name}`", one.meaning) for name, one in VERDICTS.items()])


def verdicts(text: str) -> str:
    """The reference of the qualifiers of a difference, and of the checks of a study."""
    named = [(f"*{name}*", meaning) for name, meaning in QUALIFIERS.items()]
    asked = [asked for kind, asked in KINDS.items() if kind != "limits"]
    return under(under(text, "## Qualifiers of a difference", named), "## Six checks", asked)
