"""Results that somebody already has: read, checked for what must be equal, paired where the user says how, and judged.

Opinion: `meshtrial.stats` has the last word on every number, and this room the first on whether there is anything to
compare: unequal loads, copies of a file and single runs are refused before a p-value exists. Limits: what a file does
not say (the order of the runs, the placement, the proof that a mesh was in the path) nobody can check afterwards.
"""
