"""Tidy tables, and CSVs as programs and spreadsheets of several countries write them."""

import itertools
from pathlib import Path

import polars as pl
import pytest

from meshtrial.compare import tables

HEADER = "run,block,treatment,response,value\n"


def table(blocks=6, response="p50_ms", factor=1.25, block=True):
    """Every block's treatment is 25 % above its baseline."""
    rows = []
    for b in range(1, blocks + 1):
        base = 1 + b / 10
        label = str(b) if block else ""
        rows += [f"n{b},{label},none,{response},{base:.3f}", f"i{b},{label},istio,{response},{base * factor:.4f}"]
    return HEADER + "\n".join(rows) + "\n"


def test_blocks_pair(bench):
    bench.write("t.csv", table())
    answer = bench.compare("--table", "t.csv", "--baseline", "none", "--treatment", "istio")
    assert answer.code == 0, answer.err
    assert answer.out.startswith("6 blocks: the smallest possible p is 2/64 = 0.031.\n")
    record = answer.record
    (row,) = record["verdicts"]
    assert row["ratio"] == pytest.approx(1.25)
    assert row["p"] == pytest.approx(2 / 64)
    assert row["response"] == "latency_p50_s"
    assert row["baseline_value"] == pytest.approx(1.35e-3)  # ms became seconds
    assert record["pairing"] == "paired by the table's blocks"
    assert "widened" not in answer.out  # its values are exact


def test_without_blocks_unpaired(bench):
    bench.write("t.csv", table(4, block=False))
    answer = bench.compare("--table", "t.csv", "--baseline", "none")
    assert answer.flat.startswith("4 against 4 runs, not paired: the smallest possible p is 2/70")
    assert "order-unknown" in answer.out
    named = bench.compare("--table", "t.csv", "--baseline", "none", "--pair-by", "order")
    assert named.flat.startswith("4 blocks: the smallest possible p is 2/16")


def test_parquet_and_where(bench):
    frames = [
        pl.DataFrame(
            {
                "run_id": [f"{load}{b}{t}" for b in range(4) for t in ("none", "istio")],
                "load": load,
                "block": [b for b in range(4) for _ in range(2)],
                "treatment": ["none", "istio"] * 4,
                "response": "latency_p50_s",
                "value": [0.001 + b / 1e4 + t / 1e3 for b in range(4) for t in range(2)],
                "included": True,
            }
        )
        for load in ("100rps", "200rps")
    ]
    pl.concat(frames).write_parquet(bench.folder / "runs.parquet")
    arguments = ("--table", "runs.parquet", "--baseline", "none")
    bench.refused(*arguments)
    assert bench.compare(*arguments, "--where", "load=100rps").code == 0
    bench.refused(*arguments, "--where", "load=1rps")
    bench.refused(*arguments, "--where", "colour=red")


def test_a_parquet_of_more_rows_than_anybody_has_runs_is_refused_before_it_is_read(bench, monkeypatch):
    pl.DataFrame({"run": ["a"] * 1001}).write_parquet(bench.folder / "runs.parquet")
    monkeypatch.setattr(tables, "MOST_ROWS", 1000)
    bench.refused("--table", "runs.parquet", "--baseline", "none")


def test_the_twin_stands_outside_the_family(bench):
    text = table(7)
    for b in range(1, 8):
        text += f"a{b},{b},none-aa,p50_ms,{1 + b / 10 + (0.001 if b % 2 else -0.001):.3f}\n"
    bench.write("t.csv", text)
    answer = bench.compare("--table", "t.csv", "--baseline", "none")
    istio, twin = answer.record["verdicts"]
    assert (istio["twin"], twin["twin"]) == (False, True)
    assert istio["p_adjusted"] == istio["p"]  # a family of one
    assert istio["noise_floor"] is not None
    assert "none-aa (A/A twin)" in answer.out


def test_an_incomplete_block_leaves_for_all(bench):
    bench.write("t.csv", table(7).replace("i7,7,istio,p50_ms,2.1250\n", ""))
    answer = bench.compare("--table", "t.csv", "--baseline", "none")
    assert answer.code == 0, answer.err
    assert answer.record["verdicts"][0]["n_blocks"] == 6


def test_any_response_with_a_margin_of_its_own(bench):
    bench.write("t.csv", table(8, response="fps", factor=0.8))
    answer = bench.compare("--table", "t.csv", "--baseline", "none", "--margin", "fps=5%")
    (row,) = answer.record["verdicts"]
    assert (row["verdict"], row["qualifier"]) == ("lower", "material")
    assert "fps; margin 5 %" in answer.out


@pytest.mark.parametrize(
    "content",
    [
        "",
        "a,b\n1,2\n",
        HEADER,
        table(response="p50"),
        table().replace("1.100", "fast", 1),
        table() + "n1,1,none,p50_ms,1.1\n",
        table().replace("1.100", "1e30", 1),
        table() + "n1,1,none,latency_max_s,0.0005\n",
        table() + "n9,1,none,p50_ms,1.1\n",
        table() + "n9,,none,p50_ms,1.1\n",
        table().replace("1.100", "0", 1),
        table(1),
        "included," + HEADER + "WAHR,n1,1,none,p50_ms,1\n",
        "included," + HEADER + ",n1,1,none,p50_ms,1\n",
        "included," + HEADER + "FALSE,n1,1,none,p50_ms,1\n",
        "PAR1 but not really",
        table().replace("1.100", '"1,100"', 1),
        table().replace("1.100", '"1 100,5"', 1),
        table().replace("1.100", "1,100", 1),
        "Results of Monday\n\na,b\n1,2\n",
        "run,treatment,value\n1,a,1,5\n",
        "run,Run,value\n1,a,1\n",
        'run,treatment,value\n"1,a,1\n',
    ],
    ids=itertools.count(),
)
def test_a_table_that_cannot_be_used(bench, content):
    bench.write("t.csv", content)
    bench.refused("--table", "t.csv", "--baseline", "none")


def test_a_table_out_of_a_spreadsheet_gives_the_same_verdict(bench):
    bench.write("t.csv", table())
    text = table().replace(".", ",").replace("p50_ms,", "p50_ms;").replace(HEADER, HEADER.upper())
    lines = [line.replace(",", ";", 3 if line[0] in "ni" else 4) for line in text.splitlines()]
    sheet = "\r\n".join([*lines, ";;;;", ""])
    assert lines[1] == "n1;1;none;p50_ms;1,100"
    (bench.folder / "sheet.csv").write_bytes(sheet.encode("utf-16"))
    plain, out_of_sheet = (bench.compare("--table", name, "--baseline", "none") for name in ("t.csv", "sheet.csv"))
    assert plain.code == 0, plain.err
    assert out_of_sheet.record["verdicts"] == plain.record["verdicts"]


def test_names_of_the_table(bench):
    bench.write("t.csv", table())
    bench.refused("--table", "t.csv", "--baseline", "none", "--treatment", "kuma")
    bench.refused("--table", "t.csv", "--baseline", "none", "--pair-by", "order")
    bench.refused("--table", "absent.csv", "--baseline", "none")


KNOWN = ("run", "treatment", "value")


def read(text):
    return tables.read_sheet(text, Path("t.csv"), KNOWN, "value").to_dicts()


WANTED = [{"run": "01", "treatment": "a b", "value": "1.5"}, {"run": "2", "treatment": "c", "value": "0.123"}]


@pytest.mark.parametrize(
    "text",
    [
        "run,treatment,value\n01,a b,1.5\n2,c,0.123\n",
        "run,treatment,value\r\n01,a b,1.5\r\n2,c,0.123",
        "run,treatment,value\r01,a b,1.5\r2,c,0.123\r",
        "run;treatment;value\n01;a b;1,5\n2;c;0,123\n",
        "run;treatment;value\n01;a b;1.5\n2;c;0.123\n",
        "run\ttreatment\tvalue\n01\ta b\t1.5\n2\tc\t0.123\n",
        "run|treatment|value\n01|a b|1,5\n2|c|0,123\n",
        'run,treatment,value\n01,a b,"1,5"\n2,c,"0,123"\n',
        'Run, Treatment ,"VALUE"\n01, a b , 1.5\n2 ,"c", 0.123\n',
        'sep=;\n"run";"treatment";"value"\n01;a b;1,5\n2;c;0,123\n',
        "\nrun,treatment,value,,\n01,a b,1.5,,\n,,,,\n\n2,c,0.123\n,,,,,,\n",
    ],
    ids=[
        *("plain", "Windows", "old Mac", "semicolons", "semicolons and points", "tabs", "bars", "quoted commas"),
        *("spaces and capitals", "told to Excel", "empty rows and columns"),
    ],
)
def test_one_table_however_it_is_written(text):
    assert read(text) == WANTED


def test_a_short_row_is_filled_and_columns_without_a_name_are_counted():
    assert read(",run,treatment,value,unit\n0,1,a,2\n") == [
        {"column 1": "0", "run": "1", "treatment": "a", "value": "2", "unit": ""}
    ]


@pytest.mark.parametrize(
    ("separator", "written", "taken"),
    [
        (";", ["1,200", "1,500"], ["1.200", "1.500"]),  # with semicolons as separators, commas are decimal
        (";", ["1,2E-03", "-,5"], ["1.2E-03", "-.5"]),
        ("\t", ["1,200", "1,25"], ["1.200", "1.25"]),  # 1,25 is not a thousands separator
        ("\t", ["0,200", "1,500"], ["0.200", "1.500"]),  # nor is 0,200
        ("\t", ["1,200", "1,500"], None),
        (";", ["1,200", "1.5"], None),
        (";", ["1.200,5", "1,5"], ["1.200,5", "1.5"]),
        (";", ["1,200,300", "fast"], None),
    ],
)
def test_a_comma_is_a_decimal_mark_where_the_table_shows_it(separator, written, taken):
    rows = read("\n".join(separator.join(row) for row in (KNOWN, *(("1", "a", value) for value in written))))
    assert [row["value"] for row in rows] == (taken or written)


def test_a_table_of_nothing_that_shows_has_no_columns():
    assert read("\u00a0\n") == []
