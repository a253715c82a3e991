import pytest

from meshtrial.design.parameters import Parameter, given_in_notebook, grouped, read_parameters
from meshtrial.design.studies import STUDIES, study_module
from meshtrial.errors import UsageError

DECLARED = (
    Parameter("blocks", 0, "passes", low=0, high=100),
    Parameter("rps", 0.0, "rate", low=0),
    Parameter("backend", "local", "where", allowed=("local", "kubernetes")),
    Parameter("keepalive", True, "reuse"),
    Parameter("treatments", "", "treatments"),
)


def test_defaults_fill_what_is_not_given_and_types_are_kept():
    read = read_parameters(DECLARED, {"rps": 500})
    assert read == {"blocks": 0, "rps": 500.0, "backend": "local", "keepalive": True, "treatments": ""}
    assert isinstance(read["rps"], float)


def test_a_misspelt_name_is_refused_with_the_nearest_one():
    with pytest.raises(UsageError, match=r"'blcoks' is not known: did you mean blocks\?"):
        read_parameters(DECLARED, {"blcoks": 10})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rps": -5}, "rps = -5: allowed is 0 or more"),
        ({"blocks": 1.5}, "a whole number"),
        ({"blocks": True}, "a number"),
        ({"blocks": "ten"}, "a number"),
        ({"backend": "docker"}, "'local' or 'kubernetes'"),
        ({"keepalive": "yes"}, "true or false"),
        ({"blocks": 1000}, "0 to 100"),
        ({"treatments": {}}, "text"),
    ],
)
def test_a_bad_value_names_the_parameter_and_what_is_allowed(given, message):
    with pytest.raises(UsageError, match=message):
        read_parameters(DECLARED, given)


def test_lists_and_bare_numbers_become_text():
    assert read_parameters(DECLARED, {"treatments": ["none", "sidecar"]})["treatments"] == "none,sidecar"
    assert read_parameters(DECLARED, {"treatments": 200})["treatments"] == "200"


def test_parameter_cells_are_those_made_of_literal_assignments_alone():
    cells = [
        "",
        "blocks = 0  # help\nrps: float = 0.0",
        "# Parameters\nblcoks = 10\n",
        "from meshtrial.run.trial import Trial\nx = 3",
        "n = len(runs)",
        "broken (",
    ]
    namespace = {"blocks": 0, "rps": 0.0, "blcoks": 10, "x": 3, "n": 4}
    assert given_in_notebook(cells, namespace) == {"blocks": 0, "rps": 0.0, "blcoks": 10}


def test_what_papermill_itself_injects_is_no_parameter():
    cell = 'PAPERMILL_INPUT_PATH = "a.ipynb"\nPAPERMILL_OUTPUT_PATH = "b.ipynb"\nrps = 5'
    names = {"PAPERMILL_INPUT_PATH": "a.ipynb", "PAPERMILL_OUTPUT_PATH": "b.ipynb", "rps": 5}
    assert given_in_notebook([cell], names) == {"rps": 5}


def test_groups_are_read_off_their_headings():
    cell = "# Often set\nrps: float = 0.0  # rate\nblocks = 3\n\n# Load\nheaders: int = 0  # more"
    assert grouped(cell) == [("Often set", ["rps", "blocks"]), ("Load", ["headers"])]


@pytest.mark.parametrize("name", list(STUDIES))
def test_every_study_can_be_built_from_its_defaults(name):
    module = study_module(name)
    study = module.build(read_parameters(module.PARAMETERS, {}))
    assert study.name == name
    assert study.twin is not None


def test_studies_refuse_what_they_do_not_have():
    module = study_module("ambient_vs_no_mesh")
    for given, message in [
        ({"treatments": "none-aa"}, "names no baseline"),
        ({"margin": "p50=fast"}, "margin"),
        ({"margin": "speed=5%"}, "'speed' is not known"),
        ({"primary": "latency_max_s"}, "described only"),
    ]:
        with pytest.raises(UsageError, match=message):
            module.build(read_parameters(module.PARAMETERS, given))
    with pytest.raises(UsageError, match="study 'x' is not known"):
        study_module("x")


def test_given_margins_keep_the_rest_of_the_default():
    module = study_module("ambient_vs_no_mesh")
    study = module.build(read_parameters(module.PARAMETERS, {"margin": "p50=3%, p99=0.2ms"}))
    assert study.margins["latency_p50_s"].relative == pytest.approx(0.03)
    assert study.margins["latency_p50_s"].floor == 5e-5
    assert study.margins["latency_p99_s"].relative == 0.10
    assert study.margins["latency_p99_s"].floor == pytest.approx(2e-4)
