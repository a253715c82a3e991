"""``meshtrial predict``: a system file and a recorded study to tables and JSON."""

import json

import pytest
from commandline import meshtrial

from meshtrial import paths
from meshtrial.records import listing

SHOP = str(paths.CHECKOUT / "data" / "systems" / "online_shop.yaml")
STUDY = str(listing.SAMPLE / "decomposition-20261128T060908Z-b5e99d19.tar.xz")
pytestmark = pytest.mark.usefixtures("studies")  # packed samples are unpacked there
CALLS = "caller,callee,rps\na,b,500\nb,c,100rps\n"


def test_the_shop_is_predicted_for_every_treatment(tmp_path):
    prices = ("--core-hour", "0.04", "--gib-hour", "0.005", "--request-cores", "0.1", "--request-gib", "0.125")
    files = ("--json", str(tmp_path / "shop.json"), "--html", str(tmp_path / "shop.html"))
    code, out, err = meshtrial("predict", SHOP, "--from", STUDY, *prices, *files)
    assert (code, err) == (0, "")
    assert "recommendations" in out
    page = (tmp_path / "shop.html").read_text()
    assert "<svg" in page
    assert "place-order" in page
    written = json.loads((tmp_path / "shop.json").read_text())
    assert written["schema"] == "meshtrial.prediction/1"
    treatments = [one["treatment"] for one in written["predictions"]]
    assert treatments[0] == "tcp-pair"
    assert len(treatments) == 6
    one = written["predictions"][treatments.index("sidecar+mtls")]
    assert one["proxies"] == 14
    # A second at 500 rps is the most that a proxy below can cost, and one request the least.
    assert one["cores"]["value"] is None
    assert 0 < one["cores"]["low"] < one["cores"]["high"]
    assert one["month_requested"] == pytest.approx(14 * 730 * (0.04 * 0.1 + 0.005 * 0.125))
    assert set(one["services"]) > {"ingress", "email"}


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (["none.yaml", "--from", STUDY], 2, "none.yaml: cannot be read"),
        ([SHOP, "--from", STUDY, "--treatment", "linkerd"], 2, "no study has complete blocks of linkerd and none"),
        ([SHOP, "--from", STUDY, "--against", "linkerd"], 2, "linkerd"),
        ([SHOP, "--from", STUDY, "--core-hour", "-1", "--gib-hour", "1"], 2, "core_hour"),
        ([SHOP, "--from", STUDY, "--request-cores", "1", "--request-gib", "1"], 2, "core_hour"),
        ([SHOP, "--from", STUDY, "--nodes", "-1"], 2, "nodes = -1"),
    ],
)
def test_what_cannot_be_predicted_is_one_line(arguments, code, part):
    got, out, err = meshtrial("predict", *arguments)
    assert (got, out) == (code, "")
    assert part in err
    assert err.count("\n") == 1


def test_a_rate_with_a_unit_is_refused_with_its_line(tmp_path):
    table = tmp_path / "calls.csv"
    table.write_text(CALLS)
    code, _, err = meshtrial("predict", str(table), "--from", STUDY)
    assert code == 2
    assert "calls.csv: line 3.rps is '100rps'" in err
