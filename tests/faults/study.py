"""One short real study, started or resumed: ``PYTHONPATH=tests python -m faults.study``, folders by the environment.

Two runs of known order. It uses the library alone, because a notebook takes seconds that most faults do not need.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from faults.machine import datetime_that_is_set
from local.studies import PATIENT, study_of, without_twin

from meshtrial.design.plan import make_plan
from meshtrial.errors import MeshtrialError
from meshtrial.records import store as stores
from meshtrial.records.store import StudyStore
from meshtrial.run import measured
from meshtrial.run.runner import execute
from meshtrial.signals import interruptible
from meshtrial.testbed.local.testbed import LocalTestbed

# One slice per run: a fault is for one run, and the second starts when the first has ended.
GIVEN = {"treatments": "none,sidecar+mtls+opa", "slices": 1}
GIVEN |= {"rps": 200, "connections": 4, "duration_s": 2, "warmup_s": 1.2}


def main() -> int:
    """Exit codes of the command line."""
    for module in (stores, measured):
        module.datetime = datetime_that_is_set
    root = Path(os.environ["MESHTRIAL_DATA"])
    study = without_twin(study_of("ambient_vs_no_mesh", GIVEN | {"seed": 5}, PATIENT, blocks=1))
    begun = sorted(root.glob("*/*/plan.json"))
    try:
        with interruptible():
            store = StudyStore.open(begun[0].parent) if begun else StudyStore.create(root, make_plan(study), {})
            execute(store, LocalTestbed(study.options), lambda line: print(line, flush=True))
    except MeshtrialError as error:
        print(error)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
