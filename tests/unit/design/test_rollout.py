"""The study of restarts: its contrasts, and what it refuses before a run."""

import functools

import pytest
from building import built
from refused import refused

from meshtrial.design.studies import STUDIES
from meshtrial.design.study import Study, Treatment
from meshtrial.errors import UsageError
from meshtrial.testbed.local.testbed import LocalTestbed

rollout = functools.partial(built, "rollout")


def test_a_restart_is_written_like_a_feature_and_is_none():
    treatment = Treatment.parse("sidecar+mtls+restart-app@details")
    assert (treatment.features, treatment.restart) == (("mtls",), "app")
    assert treatment.name == "sidecar+mtls+restart-app@details"
    assert Treatment.parse("sidecar+restart-app+mtls") == Treatment.parse("sidecar+mtls+restart-app")


@pytest.mark.parametrize("text", ["none+restart-node", "none+restart-app+restart-proxies", "none+restart-"])
def test_what_cannot_be_restarted_is_refused(text):
    with refused(UsageError):
        Treatment.parse(text)


def test_each_restart_is_compared_with_its_own_calm_and_with_the_baselines_restart():
    pairs = [(c.treatment, c.baseline) for c in rollout().all_contrasts()]
    assert pairs == [
        ("none+restart-app", "none"),
        ("sidecar+restart-app", "sidecar"),
        ("sidecar+restart-app", "none+restart-app"),
        ("sidecar+restart-proxies", "sidecar"),
    ]


def test_the_window_lies_inside_the_run():
    (load,) = rollout().loads
    assert load.restart_at_s == pytest.approx(5 / 3)
    assert load.around_s == 2.5
    (load,) = rollout(duration_s=10, restart_at_s=2, around_s=4).loads
    assert (load.restart_at_s, load.around_s) == (2, 4)
    with refused(UsageError):
        rollout(duration_s=10, restart_at_s=2, around_s=9)
    assert Study.from_dict(rollout().to_dict()) == rollout()


@pytest.mark.parametrize(
    "treatments",
    [
        "none,sidecar",
        "none+restart-app,none",
        "none,sidecar+restart-app",
    ],
)
def test_lists_that_say_nothing_about_restarts_are_refused(treatments):
    with refused(UsageError):
        rollout(treatments=treatments)


@pytest.mark.parametrize("name", sorted(set(STUDIES) - {"rollout", "scale_out", "calibration", "decomposition"}))
def test_other_studies_refuse_restarts(name):
    with refused(UsageError):
        built(name, treatments="none,none+restart-app")


@pytest.mark.linux
def test_a_machine_has_no_control_plane():
    study = rollout(treatments="none,sidecar,sidecar+restart-control-plane")
    with refused(UsageError):
        LocalTestbed().preflight(study)
    with refused(UsageError):
        LocalTestbed().preflight(rollout(treatments="none,none+restart-proxies"))
