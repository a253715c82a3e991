"""What notebooks and scripts use, and nothing below it: ``import meshtrial as mt``.

Studies and comparisons are objects whose numbers come as polars frames with documented columns; figures, tables and
sections take such an object and show themselves. Nothing is computed here that the rooms below do not compute.
"""
