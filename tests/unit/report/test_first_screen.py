from meshtrial.report import figures, tables
from meshtrial.report.checks import checks, tally
from meshtrial.report.tables.first_screen import first_screen


def test_it_holds_the_sentence_the_checks_and_the_picture_in_this_order(data):
    shown = first_screen(data)
    for text in (*tables.headlines(data), tables.trust(data).text, figures.answer(data).alt):
        assert text in shown.text
    assert shown.html.index("mt-headline") < shown.html.index("mt-checks") < shown.html.index("mt-figure")


def test_a_sentence_longer_than_a_phone_has_the_count_of_checks_before_it(synth, tmp_path, variants):
    long = synth.study_data(
        tmp_path, synth.Shape(treatments=("none", "none-aa", "sidecar", "sidecar+mtls", "node-proxy"), requests=300)
    )
    assert "mt-ahead" not in first_screen(variants["no twin"]).html
    html = first_screen(long).html
    assert html.index(f'href="#checks">Can I trust it? {tally(checks(long)).capitalize()}') < html.index("mt-headline")
    assert html.count('id="checks"') == 1


def test_the_picture_holds_every_primary_row_once(data):
    table = figures.answer(data).table
    primary = [row for row in data.verdicts if row.response in data.plan.study.primary]
    assert sorted(table["ratio"].to_list()) == sorted(row.ratio for row in primary)


def test_the_picture_says_which_panels_it_has_no_room_for(synth, tmp_path):
    loads = tuple(synth.Load(rate, 10, 6.0) for rate in (100, 200, 300, 400, 500, 600, 700))
    wide = synth.study_data(tmp_path, synth.Shape(loads=loads, blocks=5, requests=300))
    figure = figures.answer(wide)
    assert "also has the other 9" in figure.caption
    assert set(figure.table["load"]) == {load.label for load in loads[:6]}
