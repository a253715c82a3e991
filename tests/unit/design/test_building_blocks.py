"""Each rate once, and at one of them a larger body and more connections."""

from building import built

from meshtrial.prediction.blocks import is_single_hop


def test_every_load_is_usable_for_a_prediction():
    study = built("building_blocks")
    assert all(map(is_single_hop, study.loads))
    labels = [load.label for load in study.loads]
    assert labels[:5] == ["1rps-3c", "10rps-10c", "100rps-10c", "500rps-10c", "2000rps-10c"]
    assert labels[5:] == ["500rps-10c-16384B", "500rps-100c"]


def test_idle_connections_are_measured_alone_and_count_as_open_ones():
    study = built("building_blocks", rates="200", connections="4", payload_bytes=0, idle_connections="0,100")
    assert [load.label for load in study.loads] == ["200rps-4c", "200rps-4c-100idle"]
    assert all(map(is_single_hop, study.loads))


def test_a_single_rate_has_its_body_and_its_connections():
    study = built("building_blocks", rates="200", connections="4,8", payload_bytes=1024)
    assert [load.label for load in study.loads] == ["200rps-4c", "200rps-4c-1024B", "200rps-8c"]
