import dataclasses
import re

import pytest
import yaml
from unit.report.synth import asked

from meshtrial import __version__, paths
from meshtrial.report import tables
from meshtrial.report.tables.provenance import citation, software


def entries(text: str) -> dict[str, dict[str, str]]:
    found = re.findall(r"@(\w+)\{[^,]+,\n(.*?)\n\}", text, flags=re.DOTALL)
    return {kind: dict(re.findall(r"^  (\w+) = \{(.*)\},$", body, flags=re.MULTILINE)) for kind, body in found}


def test_a_sentence_names_study_date_version_and_digests(data):
    sentence = citation(data).text.splitlines()[0]
    digest = tables.verdicts_sha256(data)
    for part in (data.plan.study.title, data.plan.sha256, digest, f"meshtrial {__version__}", "Apache-2.0"):
        assert part in sentence
    assert re.search(r"recorded \d{4}-\d\d-\d\d with", sentence)


def test_the_software_is_cited_as_the_citation_file_says(data):
    cited = yaml.safe_load((paths.CHECKOUT / "CITATION.cff").read_text())
    found = entries(citation(data).text)
    assert set(found) == {"misc", "software"}
    assert found["software"]["title"] == "{meshtrial}"
    assert found["software"]["version"] == cited["version"]
    assert found["software"]["author"] == f"{{{cited['authors'][0]['name']}}}"
    assert software() == cited


def test_the_study_has_no_author_that_nobody_recorded(data):
    assert "author" not in entries(citation(data).text)["misc"]


def test_a_study_that_has_not_begun_has_no_date(data):
    text = citation(dataclasses.replace(data, runs=())).text
    assert "planned with meshtrial" in text
    assert "year" not in text


@pytest.mark.parametrize(
    ("title", "written"), [("50 % & more_or{less}", r"50 \% \& more\_or\{less\}"), ("a\nb", "a b")]
)
def test_signs_of_tex_are_escaped(data, title, written):
    assert f"title = {{{{{written}}}}}" in citation(asked(data, title=title)).text
