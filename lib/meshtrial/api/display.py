"""Building blocks for your own tables and figures in the style of the library.

Examples
--------
>>> import meshtrial as mt
>>> columns = [
...     mt.display.Column("mesh", lambda row: row[0]),
...     mt.display.Column("p50", lambda row: mt.display.Cell(mt.display.change(row[1]), row[1]), numeric=True),
... ]
>>> mt.display.Table.from_rows("Against no mesh", columns, [("linkerd", 1.08), ("istio", 1.25)]).fragment()
Against no mesh
mesh         p50
linkerd   +8.0...%
istio    +25.0...%
"""

from meshtrial.report import Fragment
from meshtrial.report.figure import Figure
from meshtrial.report.markup import Cell, Column, Table
from meshtrial.report.palette import HUES, INK
from meshtrial.report.sheet import TICKS, factor_axis, panels, rows
from meshtrial.report.wording import TIMES, change, declared_percent, percent, plain

__all__ = [
    "HUES",
    "INK",
    "TICKS",
    "TIMES",
    "Cell",
    "Column",
    "Figure",
    "Fragment",
    "Table",
    "change",
    "declared_percent",
    "factor_axis",
    "panels",
    "percent",
    "plain",
    "rows",
]
