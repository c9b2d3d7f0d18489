# Every target works on a fresh machine that has Python 3.11 or newer and make.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := python -m pip install --quiet --disable-pip-version-check -c constraints.txt
PIP_INSTALL := $(BIN)/$(INSTALL)
FRAMEWORKS := accelerate lightning peft torchmetrics transformers

.PHONY: help quickstart test test-slow test-vision test-browser lint types format hooks wheel benchmarks clean
.DEFAULT_GOAL := help

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

quickstart: .venv/installed-bench ## install, then compare SGDF with four optimizers on small images: table and HTML report
	$(BIN)/sgdf quickstart

test: .venv/installed-dev lint types ## install, lint, type-check, run every test but the slow ones
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto  # one thread in each of several processes

test-slow: .venv/installed-dev .venv-vision/installed ## run what takes minutes: kills of grids, searches and Ray, damaged folders, all combinations of options, compiles, networks of full size
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow -n auto tests/core tests/optim
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow -s tests/bench
	OMP_NUM_THREADS=1 .venv-vision/bin/python -m pytest -m slow tests/vision

test-vision: .venv-vision/installed ## test what needs torchvision, timm or the frameworks that import them, in an environment of their own
	OMP_NUM_THREADS=1 .venv-vision/bin/python -m pytest -n 2 tests/vision

test-browser: .venv/installed-dev ## test the HTML pages in headless Chromium, which is installed if that is allowed
	command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq chromium; } || true
	$(BIN)/python -m pytest -m "slow or not slow" tests/present/test_page.py tests/analysis/test_analysis_pages.py

lint: .venv/installed-dev ## check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed-dev ## check the types in src
	$(BIN)/mypy

format: .venv/installed-dev ## rewrite the code in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

hooks: .venv/installed-dev ## run lint and types before every commit (needs the command pre-commit)
	pre-commit install

wheel: .venv/installed-dev ## build dist/, then install the wheel into an empty environment and use it
	rm -rf dist build/empty
	$(BIN)/python -m build
	$(PYTHON) -m venv build/empty
	build/empty/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	cd build && empty/bin/python -c "import torch, sgdf; p = torch.ones(3, requires_grad=True); p.sum().backward(); sgdf.SGDF([p]).step(); print(sgdf.__file__, p)"

benchmarks: .venv/installed-dev ## measure the import, the first step, what a step costs (README's table), the monitor, the bench, the scores of images and the decoding of pictures
	$(BIN)/python benchmarks/import_time.py
	$(BIN)/python benchmarks/first_use.py
	$(BIN)/python benchmarks/cost_table.py
	$(BIN)/python benchmarks/state_formats.py
	$(BIN)/python benchmarks/foreach_memory.py
	$(BIN)/python benchmarks/monitor_cost.py
	$(BIN)/python benchmarks/probes.py
	$(BIN)/python benchmarks/bench_start.py
	$(BIN)/python benchmarks/bench_loop.py
	$(BIN)/python benchmarks/report_size.py
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/fidelity_memory.py
	$(PIP_INSTALL) --no-deps --upgrade --target build/vision torchvision  # apart: not all of it loads beside every torch
	PYTHONPATH=build/vision $(BIN)/python benchmarks/augmentation.py
	PYTHONPATH=build/vision $(BIN)/python benchmarks/decoding.py

clean: ## remove everything that the other targets made
	rm -rf .venv .venv-vision build dist results .hypothesis .mypy_cache .pytest_cache .ruff_cache

.venv/bin/python:
	@echo "Making a virtual environment in .venv"
	$(PYTHON) -m venv .venv

.venv/installed-bench: .venv/bin/python pyproject.toml constraints.txt
	@echo "Installing torch, sgdf and its bench into .venv: about a gigabyte, a minute or two"
	$(PIP_INSTALL) -e '.[bench]'
	touch $@

.venv/installed-dev: .venv/bin/python pyproject.toml constraints.txt
	@echo "Installing torch, sgdf, its bench and the tools for its tests into .venv: a few minutes"
	$(PIP_INSTALL) -e '.[bench,dev,ray]'
	touch $@ .venv/installed-bench

.venv-vision/installed: pyproject.toml constraints.txt
	@echo "Installing the extra vision and the frameworks that import torchvision into .venv-vision: a few minutes"
	$(PYTHON) -m venv .venv-vision
	.venv-vision/bin/$(INSTALL) -e '.[bench,dev,vision]' $(FRAMEWORKS)
	touch $@
