"""Generate the parts of the documentation that follow from the code and from recorded studies.

``.venv/bin/python docs/make_reference.py`` rewrites them after a change of a column, parameter, command or verdict.
With the argument ``calibration`` it measures the error rates again too, which takes long. A generated table replaces
the rows below its heading, or everything from its heading to the end of the page. The pages are Markdown, so that the
repository can be read without a build. What Sphinx takes from docstrings is not generated here.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from pages.commands import command_line
from pages.error_rates import CALIBRATION, calibration, calibration_summary
from pages.notebooks import notebook
from pages.parameters import durations, parameters
from pages.responses import responses
from pages.results import picture, results
from pages.verdicts import page, schema, verdicts

from meshtrial import paths
from meshtrial.design.studies import STUDIES

MADE: dict[Path, Callable[[str], str]] = {
    Path("docs", "schema", "export.schema.json"): schema,
    Path("docs", "reference", "files.md"): page,
    Path("docs", "reference", "verdicts.md"): verdicts,
    Path("docs", "reference", "parameters.md"): parameters,
    Path("docs", "reference", "responses.md"): responses,
    Path("docs", "reference", "command-line.md"): command_line,
    Path("docs", "reference", "durations.md"): durations,
    Path("docs", "explanation", "calibration.md"): calibration_summary,
    Path("docs", "explanation", "results.md"): results,
    Path("docs", "meshes.svg"): picture,
    **{Path("notebooks", f"{study}.ipynb"): notebook(study) for study in STUDIES},
}

if __name__ == "__main__":
    # The summary reads the table, so the table comes first.
    for path, made in (({CALIBRATION: calibration} if "calibration" in sys.argv[1:] else {}) | MADE).items():
        where = paths.CHECKOUT / path
        where.write_text(made(where.read_text()))
