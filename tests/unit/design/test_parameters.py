import math
from typing import Annotated

import msgspec
import pytest
from building import built
from refused import refused

from meshtrial.design.load import FixedRate, Load
from meshtrial.design.parameters import Taken, given_in_notebook, require_bounds, settings_of, with_design
from meshtrial.design.settings import GROUPS, Settings
from meshtrial.design.studies import STUDIES
from meshtrial.errors import UsageError

TAKEN = Taken(
    cell=("blocks", "rps", "backend", "keepalive", "treatments", "design"), further=("connections", "headers", "sizes")
)


def test_defaults_fill_what_is_not_given_and_types_are_kept():
    read = TAKEN.read({"rps": 500, "connections": "10, 50,10"})
    assert (read.blocks, read.rps, read.backend, read.keepalive, read.treatments) == (0, 500.0, "local", True, "")
    assert isinstance(read.rps, float)
    assert read.connections == (10, 50)
    assert TAKEN.plain(read)["connections"] == "10,50"


@pytest.mark.parametrize("value", ["10,50", [10, 50], (10, "50")])
def test_a_list_of_numbers_is_text_or_a_list(value):
    assert TAKEN.read({"connections": value}).connections == (10, 50)


@pytest.mark.parametrize("value", [0, "0", "", []])
def test_where_0_can_be_no_value_it_is_what_the_profile_says(value):
    assert TAKEN.read({"connections": value}).connections == ()
    assert built("ambient_vs_no_mesh", connections=value) == built("ambient_vs_no_mesh")


def test_a_misspelt_name_is_refused_with_the_nearest_one():
    with refused(UsageError):
        TAKEN.read({"blcoks": 10})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rps": -5}, "must be 0 to 1000000"),
        ({"blocks": 1.5}, "must be a whole number"),
        ({"blocks": True}, "must be a number"),
        ({"blocks": "ten"}, "must be a number"),
        ({"backend": "docker"}, "must be 'local' or 'kubernetes'"),
        ({"keepalive": "yes"}, "must be true or false"),
        ({"blocks": math.inf}, "must be a finite number"),
        ({"rps": math.nan}, "must be a finite number"),
        ({"rps": 1e308}, "must be 0 to 1000000"),
        ({"blocks": 10**5000}, "must be 0 to 1000"),
        ({"blocks": 1001}, "must be 0 to 1000"),
        ({"treatments": {}}, "must be text"),
        ({"connections": "10,x"}, "must be whole numbers with commas, each 1 to 20000"),
        ({"connections": 2.5}, "must be whole numbers with commas, each 1 to 20000"),
        ({"connections": " , "}, "must be whole numbers with commas, each 1 to 20000"),
        ({"connections": [10, 20001]}, "must be whole numbers with commas, each 1 to 20000"),
        ({"sizes": "30,31"}, "must be whole numbers with commas, each 3 to 600, a multiple of 3"),
    ],
)
def test_a_bad_value_names_the_parameter_what_is_allowed_and_what_it_means(given, message):
    (name,) = given
    with pytest.raises(UsageError) as refusal:
        TAKEN.read(given)
    assert str(refusal.value).startswith(f"{name} = ")
    assert str(refusal.value).endswith(f": {message} ({settings_of(Settings)[name].help})")


def test_a_list_is_refused_where_a_study_takes_one_number():
    with refused(UsageError):
        built("rollout", connections="10,20")


def test_lists_and_bare_numbers_become_text():
    assert TAKEN.read({"treatments": ["none", "sidecar"]}).treatments == "none,sidecar"
    assert TAKEN.read({"treatments": 200}).treatments == "200"


def test_every_setting_is_described_in_a_group_and_taken_by_a_study():
    settings = settings_of(Settings)
    assert all(one.help for one in settings.values())
    assert next(iter(settings)) in GROUPS.keys() <= settings.keys()
    assert {name for study in STUDIES.values() for name in study.SETTINGS.settings} == set(settings)


def test_a_load_has_the_bounds_of_the_settings_it_is_made_of():
    own, settings = settings_of(Load), settings_of(Settings)
    added = ("unused_services", "idle_connections", "after_s")
    for name in ("connections", "duration_s", "headers", "timeout_s", "protocol", *added):
        assert (own[name].bounds, own[name].allowed) == (settings[name].bounds, settings[name].allowed)
    with refused(UsageError):
        FixedRate(rps=100, connections=4, duration_s=2, headers=101)


class Bounded(msgspec.Struct):
    share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.5


def test_a_bound_itself_is_within_where_it_is_inclusive():
    require_bounds(Bounded(1.0))
    with refused(UsageError):
        require_bounds(Bounded(0))


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
    assert given_in_notebook(cells, namespace, TAKEN) == {"blocks": 0, "rps": 0.0, "blcoks": 10}


def test_lines_of_the_parameters_cell_that_have_their_default_leave_the_setting_to_the_design(tmp_path):
    design = tmp_path / "design.yaml"
    design.write_text("rps: 700\nheaders: 3\nblocks: 9\ntreatments: none,sidecar\n")
    cell, names = TAKEN.source().replace("blocks: int = 0", "blocks: int = 4"), {}
    injected = f"# Parameters\ndesign = {str(design)!r}\nrps = 0.0\n"
    exec(cell, names)
    exec(injected, names)
    given = given_in_notebook([cell, injected], names, TAKEN)
    read = TAKEN.read(with_design(given))
    # A change in the cell wins, and so does an injected value, although it is the default.
    assert (read.blocks, read.rps, read.headers, read.treatments) == (4, 0.0, 3, "none,sidecar")


def test_a_design_names_no_other(tmp_path):
    design = tmp_path / "design.yaml"
    design.write_text("design: other.yaml\n")
    with refused(UsageError, names=[design, "design"]):
        with_design({"design": str(design)})


def test_what_papermill_itself_injects_is_no_parameter():
    cell = 'PAPERMILL_INPUT_PATH = "a.ipynb"\nPAPERMILL_OUTPUT_PATH = "b.ipynb"\nrps = 5'
    names = {"PAPERMILL_INPUT_PATH": "a.ipynb", "PAPERMILL_OUTPUT_PATH": "b.ipynb", "rps": 5}
    assert given_in_notebook([cell], names, TAKEN) == {"rps": 5}


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
        ({"margin": "speed=5%"}, ["'speed'", "responses.md"]),
        ({"primary": "latency_max_s"}, ["primary", "latency_max_s"]),
    ],
)
def test_studies_refuse_what_they_do_not_have(given, names):
    with refused(UsageError, names=names):
        built("ambient_vs_no_mesh", **given)


def test_a_study_that_is_not_known_is_refused_with_those_that_are():
    with refused(UsageError):
        built("x")
