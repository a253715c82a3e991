"""A CSV as programs and spreadsheets of several countries write it: one table, or one clear line."""

import itertools
from pathlib import Path

import pytest
from refused import refused

from meshtrial.compare import sheet
from meshtrial.load.files import InputFileError

KNOWN = ("run", "treatment", "value")


def read(text):
    return sheet.read_sheet(text, Path("t.csv"), KNOWN, "value").to_dicts()


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
        (";", ["1,200", "1,500"], ["1.200", "1.500"]),  # who separates by semicolons has decimal commas
        (";", ["1,2E-03", "-,5"], ["1.2E-03", "-.5"]),
        ("\t", ["1,200", "1,25"], ["1.200", "1.25"]),  # 1,25 is no number of thousands
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


@pytest.mark.parametrize(
    "text",
    [
        "run,treatment,value\n1,a,1,5\n",
        "run,Run,value\n1,a,1\n",
        'run,treatment,value\n"1,a,1\n',
    ],
    ids=itertools.count(),
)
def test_what_is_no_table(text):
    with refused(InputFileError):
        read(text)


def test_a_table_of_more_rows_than_anybody_has_runs(monkeypatch):
    monkeypatch.setattr(sheet, "MOST_ROWS", 1)
    with refused(InputFileError, names=["t.csv", 2]):
        read("run,treatment,value\n1,a,1\n2,a,1\n")


def test_a_table_of_nothing_that_shows_has_no_columns():
    assert read("\u00a0\n") == []
