import pytest


@pytest.fixture(autouse=True)
def studies(tmp_path, monkeypatch):
    """Packed samples are unpacked into the test's own folder."""
    monkeypatch.setenv("MESHTRIAL_DATA", str(tmp_path))
