import math

import pytest
from building import built
from refused import refused

from meshtrial.design.parameters import Parameter, given_in_notebook, grouped, read_parameters
from meshtrial.design.studies import STUDIES
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
    with refused(UsageError):
        read_parameters(DECLARED, {"blcoks": 10})


@pytest.mark.parametrize(
    "given",
    [
        {"rps": -5},
        {"blocks": 1.5},
        {"blocks": True},
        {"blocks": "ten"},
        {"backend": "docker"},
        {"keepalive": "yes"},
        {"blocks": math.inf},
        {"rps": math.nan},
        {"rps": 1e308},
        {"blocks": 10**5000},
        {"blocks": 1000},
        {"treatments": {}},
    ],
)
def test_a_bad_value_names_the_parameter_and_what_is_allowed(given):
    with refused(UsageError):
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
    study = built(name)
    assert study.name == name
    assert study.twin is not None


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"treatments": "none-aa"}, ["treatments", "none-aa"]),
        ({"margin": "p50=fast"}, ["margin", "p50=fast"]),
        ({"margin": "speed=5%"}, ["'speed'", "latency_p50_s"]),
        ({"primary": "latency_max_s"}, ["primary", "latency_max_s"]),
    ],
)
def test_studies_refuse_what_they_do_not_have(given, names):
    with refused(UsageError, names=names):
        built("ambient_vs_no_mesh", **given)


@pytest.mark.parametrize(
    "study",
    [
        "scale_out",
        "mesh_comparison",
    ],
)
def test_a_list_of_numbers_without_a_number_is_refused(study):
    with refused(UsageError):
        built(study, rates=" , ")


def test_a_study_that_is_not_known_is_refused_with_those_that_are():
    with refused(UsageError):
        built("x")
