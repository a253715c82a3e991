import shutil

import pytest
from commandline import SAMPLE, meshtrial

from meshtrial.commands import report


@pytest.mark.parametrize(("inside", "named"), [(True, "data/study"), (False, "")])
def test_a_page_names_no_folder_above_the_one_that_it_was_asked_from(tmp_path, monkeypatch, inside, named):
    folder = shutil.copytree(SAMPLE, tmp_path / "data" / "study")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path if inside else tmp_path / "elsewhere")
    given = {}
    # The real notebook takes long; its parameters determine what its page shows.
    monkeypatch.setattr(report, "run_notebook", lambda study, parameters, out, gate: given.update(parameters) or 0)
    assert meshtrial("report", folder) == (0, "", "")
    assert given == {"study_dir": named or str(folder), "measure": False}
