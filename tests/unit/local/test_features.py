"""The sidecar settings of features, as data: several features combine in their order."""

from meshtrial.testbed.local.features import Addition, joined


def prove(phase, requests):
    return []


def test_without_a_feature_nothing_is_added():
    none = joined([])
    assert none == Addition(provers=[], filters=[], server_clusters=[], clusters=[], flags=[])
    assert (none.upstream, none.tls) == ({}, (None, None))


def test_several_are_one_and_keep_their_order():
    tls = ({"name": "client"}, {"name": "server"})
    first = Addition([prove], filters=[{"name": "jwt"}], tls=tls, access_logs={"client sidecar": {"name": "file"}})
    second = Addition(
        [prove],
        filters=[{"name": "opa"}],
        clusters=[{"name": "collector"}],
        flags=("--flag", "1"),
        tracing={"server sidecar": {"name": "otel"}},
        upstream={"lb_policy": "LEAST_REQUEST"},
    )
    both = joined([first, second])
    assert both.provers == [prove, prove]
    assert [one["name"] for one in both.filters] == ["jwt", "opa"]
    assert (both.clusters, both.flags) == ([{"name": "collector"}], ["--flag", "1"])
    assert (both.access_logs, both.tracing) == (first.access_logs, second.tracing)
    assert (both.tls, both.upstream) == (tls, {"lb_policy": "LEAST_REQUEST"})
    assert joined([second, first]).tls == tls
