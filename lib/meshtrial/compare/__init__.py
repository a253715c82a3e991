"""Compare existing results: read them, check that they are comparable, pair them as requested, and test them.

`meshtrial.stats` computes all numbers. This room first decides whether there is anything to compare: unequal loads,
copied files and single runs are refused before any test. What files do not contain cannot be checked, such as the
order of the runs, their placement, or whether a mesh was in the path.
"""
