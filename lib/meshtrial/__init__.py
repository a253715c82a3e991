"""Randomised, controlled trials of service meshes.

The library under the notebooks. One direction of flow: a study spec becomes a plan, the runner
executes the plan on a testbed, fortio loads it, every raw number is recorded once, and verdicts
are inferred from the records alone. See README.md for use.
"""

__version__ = "0.1.0"
