"""The public interface for notebooks and scripts: ``import meshtrial as mt``.

Studies and comparisons are objects that return polars frames with documented columns. Figures, tables and sections are
made from such an object and display themselves. All computation is done in the rooms below.
"""
