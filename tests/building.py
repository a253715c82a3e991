"""Build studies as notebooks do: from a name and parameters."""

from meshtrial.design.studies import study_module
from meshtrial.design.study import Study


def built(name: str, **given: object) -> Study:
    module = study_module(name)
    return module.build(module.SETTINGS.read({"seed": 1} | given))
