from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def _load(name: str) -> ModuleType:
    # Test folders are no packages here (importlib mode), so the helper beside the tests is loaded by its path.
    spec = importlib.util.spec_from_file_location(f"report_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def synth() -> ModuleType:
    return _load("synth")


@pytest.fixture(scope="session")
def data(synth, tmp_path_factory):
    return synth.study_data(tmp_path_factory.mktemp("study"))
