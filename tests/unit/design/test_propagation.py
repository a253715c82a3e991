"""The study of changes: its parameters give turns of one load, and impossible ones are refused before a run."""

import functools

import pytest
from building import built
from refused import refused

from meshtrial.design.load import FixedRate
from meshtrial.design.study import Study, Treatment
from meshtrial.errors import UsageError
from meshtrial.testbed.local.testbed import LocalTestbed

propagation = functools.partial(built, "propagation")


def test_a_run_is_as_long_as_its_turns_quiet_and_under_churn():
    study = propagation(changes="weight,endpoints", change_every_s=0.5, cycles=3)
    quiet, disturbed = study.loads
    assert quiet.changes == ("weight", "endpoints")
    # Twelve changes half a second apart, and half a second after the last one.
    assert quiet.duration_s == 6.5
    assert (quiet.churn_per_min, disturbed.churn_per_min) == (0, 600)
    assert (quiet.label, disturbed.label) == ("400rps-8c-close", "400rps-8c-close-churn600")
    assert Study.from_dict(study.to_dict()) == study


def test_services_that_nobody_calls_are_loads_too():
    labels = [load.label for load in propagation(churn_per_min="0,60", unused_services="0,200").loads]
    plain = "400rps-8c-close"
    assert labels == [plain, f"{plain}-churn60", f"{plain}-200unused", f"{plain}-200unused-churn60"]


def test_what_is_changed_is_what_is_judged():
    assert propagation().primary == (
        "propagation_all_endpoints_s",
        "propagation_all_deny_s",
        "propagation_all_weight_s",
    )
    assert propagation(changes="authorization").primary == ("propagation_all_deny_s", "propagation_all_allow_s")
    on_cluster = propagation(backend="kubernetes")
    assert on_cluster.app == "two-versions"
    assert on_cluster.primary == ("propagation_all_endpoints_s", "propagation_all_deny_s", "propagation_all_allow_s")
    assert ("linkerd", "istio") in [(c.treatment, c.baseline) for c in on_cluster.all_contrasts()]


@pytest.mark.parametrize(
    "given",
    [
        {"changes": "weights"},
        {"changes": "weight", "backend": "kubernetes"},
        {"churn_per_min": "-1"},
    ],
)
def test_what_cannot_be_changed_is_refused(given):
    with refused(UsageError):
        propagation(**given)


@pytest.mark.linux
def test_a_treatment_in_which_nothing_can_be_changed_is_refused_before_it_runs():
    with refused(UsageError):
        LocalTestbed().preflight(propagation(treatments="none,xds"))


@pytest.mark.linux
@pytest.mark.parametrize(
    ("treatment", "load"),
    [
        ("xds@details", FixedRate(10, 1, 1)),
        ("xds", FixedRate(10, 1, 1, protocol="h2")),
        ("xds", FixedRate(10, 1, 1, replicas=2)),
        ("xds", FixedRate(10, 1, 1, response_bytes=10)),
        ("xds+push-delay-0ms", FixedRate(10, 1, 1)),
    ],
)
def test_what_the_two_versions_are_not_made_for_is_refused(treatment, load):
    from meshtrial.testbed.local.dataplanes import check

    with refused(UsageError, names=["treatment"]):
        check(Treatment.parse(treatment), load)
