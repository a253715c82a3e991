"""Studies as notebooks build them: by their name and the parameters that are given."""

from meshtrial.design.parameters import read_parameters
from meshtrial.design.studies import study_module
from meshtrial.design.study import Study


def built(name: str, **given: object) -> Study:
    module = study_module(name)
    return module.build(read_parameters(module.PARAMETERS, {"seed": 1} | given))
