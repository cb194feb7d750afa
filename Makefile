# A developer's tasks. `.venv` is made when it is first needed, and again only when its inputs change.
#
#   make demo [SEED=n]   train CartPole with two agents, a learner and an evaluation process, then prove the result
#   make test            all tests                        make check   lint, format, types, layers, words
#   make quick           most unit tests (a fifth of the generated examples), and one whole run of CartPole
#   make bench           every performance claim          make learn   presets over seeds: docs/results.md
#   make bench-reverb    compare with Reverb, which needs Python <= 3.11 and TensorFlow
#   make bench-learning  compare with Stable-Baselines3, sbx-rl and Sample Factory: time to solve tasks, env steps/s
#   make speed           quick rounds of these comparisons and of memory, and the tables of docs/speed.md
#   make policies [PRESETS=...]  collect the best policies of `make learn` on this machine: docs/pretrained.md
#   make datasets [TASKS=n] record datasets for learning offline: docs/algorithms/recorded.md
#   make kills           kill server, agents and Redis 20 times in a run, which must still solve CartPole; and writers,
#                        readers and Redis of a DurableReplay 50 times
#   make chaos [SEED=n]  200 kills over all roles in one run, with invariants checked: docs/reliability.md
#   make soak [MINUTES=n] a run at full speed; slopes of memory, threads, descriptors and disk: docs/reliability.md
#   make attack          all hostile peers, and check and start every preset and template: docs/robustness.md
#   make graphs          every learner's compiled updates next to its uncompiled ones, from 100 states
#   make cluster [PRESET=n]  execute rendered Kubernetes manifests in containers, with failures: docs/cluster-tests.md
#   make image           build the container image with docker, podman or buildah: docs/container.md
#   make docs            write the pages that are generated from the code
#   make site            build docs/ as a site with search and the API reference, in .cache/site
#   make images          draw the pictures of the live view
#   make wheel           build the distribution, which `pip install` uses, in dist/
#   make pictures        draw the pictures of the dashboard and of plots from short runs; needs Chromium
#   make clean           remove what the other targets made, except runs/

PYTHON ?= python3
SEED ?= 0
PRESET ?= cartpole-dqn
# CartPole counts as solved from 475 on (gymnasium's reward threshold); the preset's goal is its reference, 500.
DEMO_GOAL = $(if $(filter cartpole-dqn,$(PRESET)),--set run.stop_at_return=475)
PRESETS ?=
SEEDS ?= 0 1 2
MINUTES ?= 60
TASKS ?=
PYTEST_ARGS ?=

BIN := .venv/bin
# Empty files: what runs and the dashboard need is installed; what all tests need is installed as well.
BASE := .venv/base
STAMP := .venv/installed

# The processes of a run share the cores, so more threads in each would only compete.
export OMP_NUM_THREADS = 1

.PHONY: demo test quick check bench bench-reverb bench-learning speed learn policies datasets kills chaos attack graphs cluster image docs site images pictures wheel clean
.DEFAULT_GOAL := test

$(BASE) $(STAMP): setup.py constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is older than Python 3.11; name a newer one, as in: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e '.[$(if $(filter $(STAMP),$@),dev,dashboard)]'
	@$(BIN)/python -m compileall -qq -j 0 surreal .venv/lib || true  # with all cores; a template in a package may not compile
	@touch $(BASE) $@

# Another preset's environment may need an extra.
demo: $(if $(filter cartpole-dqn,$(PRESET)),$(BASE),$(STAMP))
	$(BIN)/surreal run $(PRESET) --seed $(SEED) $(DEMO_GOAL) --verify

# Several processes share the tests; tests/conftest.py determines how many. PYTEST_ARGS=-n0 uses one.
PYTEST := $(BIN)/python -m pytest --dist load --basetemp=.cache/tmp

test: $(STAMP)
	@mkdir -p .cache
	$(PYTEST) --maxschedchunk 1 -n auto $(PYTEST_ARGS)

# Few of these tests wait, so one worker per core is enough; each of them imports all modules.
quick: $(STAMP)
	@mkdir -p .cache
	SURREAL_TEST_EXAMPLES=0.2 $(PYTEST) --maxschedchunk 8 -n logical -m 'not slow' tests/e2e/test_run.py::test_run_trains_keeps_score_and_leaves_nothing_behind tests/unit tests/plugins $(PYTEST_ARGS)

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/unit/test_import_layers.py tests/unit/test_words.py

# Torch's optimizers make a folder for compiled code, by default one in /tmp that stays there. Some compared libraries
# (TorchRL, cpprb, Reverb) are installed into separate environments, .cache/venv-*, when first needed.
bench bench-reverb bench-learning speed: export TORCHINDUCTOR_CACHE_DIR = $(CURDIR)/.cache/torch
bench: $(STAMP)
	$(BIN)/python -m benchmarks.transport
	$(BIN)/python -m benchmarks.overhead
	$(BIN)/python -m benchmarks.acting
	$(BIN)/python -m benchmarks.updates
	$(BIN)/python -m benchmarks.gradients
	$(BIN)/python -m benchmarks.replay
	$(BIN)/python -m benchmarks.replay_memory
	$(BIN)/python -m benchmarks.prioritized
	$(BIN)/python -m benchmarks.durable
	$(BIN)/python -m benchmarks.memory
	$(BIN)/python -m benchmarks.rlx
	$(BIN)/python -m benchmarks.startup
	$(BIN)/python -m benchmarks.autoscaling
	$(BIN)/python -m benchmarks.fleet

bench-reverb: $(STAMP)
	$(BIN)/python -m benchmarks.replay --sections reverb --stored 10000 100000

bench-learning: $(STAMP)
	$(BIN)/python -m benchmarks.learning
	$(BIN)/python -m benchmarks.throughput

speed: $(STAMP)
	{ $(BIN)/python -m benchmarks.throughput --quick; $(BIN)/python -m benchmarks.learning --quick; \
		$(BIN)/python -m benchmarks.updates; $(BIN)/python -m benchmarks.memory; } | $(BIN)/python -m benchmarks.speed

learn: $(STAMP)
	$(BIN)/python -m benchmarks.learn $(PRESETS) --seeds $(SEEDS)

policies: $(STAMP)
	$(BIN)/python -m benchmarks.policies $(PRESETS)

datasets: $(STAMP)
	$(BIN)/python -m benchmarks.datasets datasets $(TASKS)

kills: $(STAMP)
	@mkdir -p .cache
	SURREAL_TEST_KILLS=20 $(PYTEST) -n0 --timeout 1500 tests/e2e/test_gradients.py -k whoever $(PYTEST_ARGS)
	SURREAL_TEST_KILLS=50 $(PYTEST) -n0 tests/e2e/test_durable_kills.py $(PYTEST_ARGS)

chaos: $(STAMP)
	@mkdir -p .cache
	$(BIN)/surreal chaos cartpole-dqn --kill all --most 200 --for 3000 --every 5 --within 120 --seed $(SEED) --report .cache/chaos.md \
		--append benchmarks/chaos/kills.csv

soak: $(STAMP)
	$(BIN)/python -m benchmarks.soak --minutes $(MINUTES) --append benchmarks/chaos/soak.csv

# `make test` runs one case of each class; this runs all of them.
attack: $(STAMP)
	@mkdir -p .cache
	SURREAL_TEST_ATTACK=1 $(PYTEST) -n auto --timeout 3600 tests/attack $(PYTEST_ARGS)

# `make test` compiles one learner, and takes updates of the others from 20 states.
graphs: $(STAMP)
	@mkdir -p .cache
	SURREAL_TEST_GRAPHS=1 $(PYTEST) -n logical --timeout 1800 tests/unit/learner/test_graphs.py -k updates_are $(PYTEST_ARGS)

# Run as root, which namespaces require.
cluster: $(STAMP)
	@mkdir -p .cache
	SURREAL_TEST_CLUSTER=$(PRESET) $(PYTEST) -n0 tests/cluster tests/plugins/clusters/kubernetes/test_checkov.py tests/e2e/test_wheel.py $(PYTEST_ARGS)

image:
	sh scripts/build_image.sh

docs: $(STAMP)
	$(BIN)/python scripts/reference_pages.py

# Not with --quiet, under which mkdocs does not count warnings.
site: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo 'open .cache/site/index.html'

images: $(STAMP)
	$(BIN)/python scripts/draw_live_view.py

# build/ may hold files that are no longer in the tree, and they would go into the wheel.
wheel: $(STAMP)
	rm -rf build dist
	$(BIN)/python -m build

pictures: $(STAMP)
	$(BIN)/python -m benchmarks.pictures

clean:
	rm -rf .venv .cache build dist surreal_rl.egg-info
	find surreal tests scripts benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
