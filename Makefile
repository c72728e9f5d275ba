# Make is the API: people and CI call the same targets. `make help` lists them.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := .make
# A pip index that has the torch build you want, for example PyTorch's CPU index: make serve TORCH_INDEX=URL
TORCH_INDEX ?=
ARGS ?=
OP ?=
# FlashAttention 3's library, or a folder with it, for bench-gpu to run beside: docs/performance.md.
FA3 ?=
AGENTS ?= agents
MODEL ?= tiny
FROM ?= wheel

PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet -c constraints.txt
CPP := $(shell find csrc -name '*.cc' -o -name '*.h' -o -name 'CMakeLists.txt' 2>/dev/null)
JOBS := $(shell nproc 2>/dev/null || echo 2)

.PHONY: help setup serve fix check test test-agents test-expectations test-installed ci-slow bench bench-slice bench-breadth bench-control bench-cpu bench-front bench-splits bench-spmd bench-gpu test-cuda sanitize-cuda docs size clean

help:  ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

# ---- setup: idempotent, offline once its stamp is there --------------------------------------------------------------

setup: $(STAMPS)/build  ## make .venv, install what the engine needs, build the C++ parts

$(STAMPS)/venv:
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "tokenlight needs Python 3.11 or newer; '$(PYTHON)' is $$("$(PYTHON)" --version 2>&1)." \
	         "Set PYTHON=/path/to/python3.12"; exit 1; }
	@echo "setup: making $(VENV) with $$("$(PYTHON)" --version)"
	@"$(PYTHON)" -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/runtime: $(STAMPS)/venv pyproject.toml constraints.txt scripts/requirements.py
	@echo "setup: installing the engine's packages into $(VENV): torch's CPU build and 25 smaller packages," \
	      "about 300 MB to download, 1 GB on disk (torch builds for CUDA are several GB: see TORCH_INDEX in the README)"
	@$(PIP) --upgrade 'pip>=24'
	@$(if $(TORCH_INDEX),$(PIP) --index-url "$(TORCH_INDEX)" torch,true)
	@$(PIP) $$($(BIN)/python scripts/requirements.py runtime build)
	@touch $@

$(STAMPS)/build: $(STAMPS)/runtime $(CPP) CMakeLists.txt
	@echo "setup: building the C++ parts (a minute or two the first time)"
	@CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) $(BIN)/python -m pip install --disable-pip-version-check --quiet \
	  --no-build-isolation --no-deps -e .
	@touch $@

$(STAMPS)/dev: $(STAMPS)/build
	@echo "setup: installing what the tests and checks use (transformers, openai, hypothesis, mypy, ...)," \
	      "about 310 MB to download; 190 of it is Triton, where torch did not bring it"
	@[ "$$(uname -sm)" != "Linux x86_64" ] || $(BIN)/python -c 'import triton' 2>/dev/null || $(PIP) triton==3.6.0
	@$(PIP) $$($(BIN)/python scripts/requirements.py test dev)
	@touch $@

# ---- use ---------------------------------------------------------------------------------------------------------------

serve: setup  ## fetch the default model (98 MB, once) and serve it; ARGS='MODEL --port 8001 ...'
	@exec $(BIN)/tokenlight serve $(ARGS)

# ---- check and test ----------------------------------------------------------------------------------------------------

fix: $(STAMPS)/dev  ## format, and mend what the linters can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $(filter %.cc %.h,$(CPP))

check: $(STAMPS)/dev  ## formatting, lint, types, room order, generated files; under a minute
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@$(BIN)/clang-format --dry-run -Werror $(filter %.cc %.h,$(CPP))
	$(BIN)/lint-imports --no-logo
	$(BIN)/mypy
	$(BIN)/python scripts/generated.py --check
	$(BIN)/python scripts/size.py --check

test: $(STAMPS)/dev  ## the CPU suite; under five minutes on two cores
	$(BIN)/pytest -q -n $(JOBS) --dist loadfile -m "not slow and not cuda and not multi_gpu" $(ARGS)

test-agents: $(STAMPS)/dev  ## real coding agents against a scripted engine: AGENTS=DIR of scripts/install_agents.sh
	TOKENLIGHT_AGENTS="$(abspath $(AGENTS))" $(BIN)/pytest -q -rs tests/agents $(ARGS)

test-expectations: $(STAMPS)/dev  ## what agents' users must be able to rely on, of a real model: MODEL=tiny, default or a GGUF file
	$(BIN)/pytest -q tests/expectations --expectations-model "$(MODEL)" $(ARGS)

test-installed:  ## build sdist and wheel, install one (FROM=wheel or sdist) for PYTHON, run the CPU suite against it
	bash scripts/test_installed.sh "$(PYTHON)" $(FROM) $(ARGS)

test-cuda: $(STAMPS)/dev  ## what needs a GPU: the engine beside transformers, every op beside its reference
	$(BIN)/pytest -q -m "cuda and not multi_gpu" $(ARGS)
	$(BIN)/pytest -q tests/kernels/test_conformance.py

sanitize-cuda: $(STAMPS)/dev  ## an engine of tiny shapes on a GPU under compute-sanitizer: memcheck, then racecheck
	bash scripts/sanitize_cuda.sh $(BIN)/python $(ARGS)

ci-slow: $(STAMPS)/dev  ## sanitizers, aarch64 build, slow tests, a fresh clone installed and served
	bash scripts/sanitize.sh
	bash scripts/portable.sh
	$(BIN)/pytest -q -n $(JOBS) --dist loadfile --no-loadscope-reorder --timeout 600 -m "slow and not cuda and not multi_gpu" $(ARGS)
	$(BIN)/pytest -q -m "not long" tests/expectations/test_[efg].py --expectations-model default

# ---- measure -----------------------------------------------------------------------------------------------------------

bench: $(STAMPS)/dev  ## one op's implementations beside the reference and the roofline: make bench OP=linear
	$(BIN)/python -m benchmarks.kernels $(if $(OP),--op $(OP)) $(ARGS)

bench-slice: $(STAMPS)/dev  ## the served default model beside transformers; prints BAR lines
	$(BIN)/python -m benchmarks.slice

bench-breadth: $(STAMPS)/dev  ## formats, tokenizers, templates beside others' code, loading, memory; BAR lines
	$(BIN)/python -m benchmarks.breadth

bench-spmd: $(STAMPS)/dev  ## what compiling a model costs, what ranks send; BAR lines
	$(BIN)/python -m benchmarks.spmd

bench-gpu: $(STAMPS)/dev  ## the engine on a GPU, dummy weights in known shapes, FA3=PATH beside it; BAR lines, bench-gpu.json
	rm -f bench-gpu-step.json bench-gpu-kernels.json
	-$(BIN)/python -m benchmarks.gpu_step tiny 16 --no-profile --json bench-gpu-step.json
	-$(BIN)/python -m benchmarks.gpu_kernels $(if $(FA3),--fa3 "$(FA3)") --json bench-gpu-kernels.json
	$(BIN)/python -m benchmarks.gpu --json bench-gpu.json --also bench-gpu-step.json bench-gpu-kernels.json $(ARGS)

bench-front: $(STAMPS)/dev  ## prompts, masks, streams, sessions of clients: what the front costs; BAR lines
	$(BIN)/python -m benchmarks.front

bench-splits: $(STAMPS)/dev  ## 100,000 random cuts of outputs per format: none may change what is parsed
	$(BIN)/python -m benchmarks.splits

$(STAMPS)/peers: $(STAMPS)/venv
	@echo "setup: installing the peers that benches compare with into .venv-peers, about 1 MB to download"
	@"$(PYTHON)" -m venv .venv-peers
	@.venv-peers/bin/python -m pip install --disable-pip-version-check --quiet \
	  tokenspeed-scheduler==0.1.42 numpy
	@touch $@

bench-control: $(STAMPS)/dev $(STAMPS)/peers  ## the control plane beside its peer; BAR lines
	$(BIN)/python -m benchmarks.control

$(STAMPS)/llama_cpp: scripts/build_llama_cpp.sh $(STAMPS)/peers
	@echo "setup: building llama.cpp into .venv-peers, 37 MB to download, ten minutes or more on two cores"
	@bash scripts/build_llama_cpp.sh .venv-peers
	@touch $@

bench-cpu: $(STAMPS)/dev $(STAMPS)/llama_cpp  ## the CPU engine beside llama.cpp; BAR lines: make bench-cpu ARGS='--only NAME'
	$(BIN)/python -m benchmarks.cpu $(ARGS)

# ---- keep --------------------------------------------------------------------------------------------------------------

docs: $(STAMPS)/dev  ## write the generated files (stubs, docs/config.md, docs/models.md)
	$(BIN)/python scripts/generated.py

size: $(STAMPS)/dev  ## lines per room, and what is over budget
	$(BIN)/python scripts/size.py

clean:  ## remove .venv, builds and stamps
	rm -rf $(VENV) $(STAMPS) build dist
