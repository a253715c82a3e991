"""Make the page of a study that exists only in memory: its notebook's cells are executed without a kernel."""

import ast
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_output

import meshtrial as mt
from meshtrial import paths
from meshtrial.api.study import RecordedStudy
from meshtrial.records.dataset import StudyData
from meshtrial.report.exporter import notebook_to_html


def page_of(data: StudyData, html: Path) -> Path:
    """Execute the notebook for this study and write its page."""
    notebook: Any = nbformat.read(paths.NOTEBOOKS / f"{data.plan.study.name}.ipynb", as_version=4)
    known: dict[str, Any] = {"mt": mt, "study": RecordedStudy(data)}
    for cell in notebook.cells:
        # The study exists, so the cell runs nothing.
        if cell.cell_type == "code" and not {"parameters", "progress"} & set(cell.metadata.get("tags", ())):
            cell.outputs = _outputs(cell.source, known)
    executed = html.with_suffix(".ipynb")
    nbformat.write(notebook, executed)
    return notebook_to_html(executed, html)


def _outputs(source: str, known: dict[str, Any]) -> list[Any]:
    body = ast.parse(source).body
    assert isinstance(body[-1], ast.Expr), source
    exec(compile(ast.Module(body[:-1], []), "cell", "exec"), known)
    shown = eval(compile(ast.Expression(body[-1].value), "cell", "eval"), known)
    forms = {"text/html": shown._repr_html_(), "text/plain": ""}
    return [new_output("execute_result", shown._repr_mimebundle_() | forms, execution_count=1)]
