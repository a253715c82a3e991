import pytest

from meshtrial.report.figure import Figure


@pytest.fixture(scope="module", autouse=True)
def studies(tmp_path_factory):
    """Packed samples are unpacked once, into a folder of the tests' own."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("MESHTRIAL_DATA", str(tmp_path_factory.mktemp("studies")))
        yield


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    """A figure shows its words and numbers around an empty drawing, which tests of the figures look at."""
    monkeypatch.setattr(Figure, "__post_init__", lambda figure: object.__setattr__(figure, "svg", "<svg></svg>"))
    monkeypatch.setattr(Figure, "address", "data:,")
