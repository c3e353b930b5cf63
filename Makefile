# `make run` and `make test` do all the set-up from a fresh clone; a second call sets up nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
PIP_INSTALL := $(BIN)/pip install -q --no-compile
# All cores compile byte code; pip would use one, also for tests and libraries that are never imported here.
UNUSED := /tests?/|/(alembic|mypyc?|networkx|pip|pygments|setuptools|sqlalchemy|torch/testing)/
COMPILE := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m compileall -qq -j 0 -x '$(UNUSED)' $(VENV)/lib src || true
# One thread each, and threads that wait do not spin: trainings of several tests share the cores, and products in
# Triton's interpreter are small. Byte code is kept: tests start hundreds of processes.
THREADS := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 OMP_WAIT_POLICY=passive
PYTEST := $(THREADS) PYTHONDONTWRITEBYTECODE= $(BIN)/pytest --dist worksteal

.PHONY: run image test test-cluster test-frameworks test-gpu test-machines release-check fuzz
.PHONY: pytest packages cluster-packages check format docs clean

# Exit code 1 of the command is a run that measured all but does not meet a rule, such as that of a
# quiet machine, which its last lines name; the set-up works then.
run: $(VENV)/.installed
	@$(BIN)/vflops run; code=$$?; [ $$code = 1 ] || exit $$code; \
	echo "make run: all is measured; vflops run exits with 1, because a rule is not met"

# The image of Containerfile in Podman's storage, from Debian's packages and wheels; no registry of images is
# needed, but mmdebstrap and podman.
image: $(VENV)/.installed
	$(BIN)/python -m tools.build_image

# Two things at a time: pip and apt-get, then the checks, which use one core, and the tests.
test:
	@$(MAKE) --no-print-directory --jobs=2 check pytest

# Three workers on two cores, because many tests wait for a scheduler.
pytest: $(VENV)/.installed-dev packages
	$(PYTEST) -n 3 -m "not frameworks and not cluster"

# The tests that train longest on a real SLURM of four nodes, and in the container image, which is built for them.
test-cluster: $(VENV)/.installed-dev cluster-packages
	$(PYTEST) -n 2 -m cluster

# Debian's packages for PROGRAM:PACKAGE pairs whose program is missing. Installed where one may; else the tests skip.
install_missing = need=; PATH="$$PATH:/usr/sbin:/sbin"; \
	for pair in $(1); do command -v "$${pair%:*}" >/dev/null || need="$$need $${pair\#*:}"; done; \
	[ -z "$$need" ] || \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$need >/dev/null; } || \
	echo "$$need missing and cannot be installed here: the tests that use them will skip"

# What the tests use besides Python: a browser, a scheduler of four nodes, ssh-keygen, ip and tc.
BROWSER := $(if $(shell command -v google-chrome 2>/dev/null),,chromium:chromium)
packages:
	@$(call install_missing,$(BROWSER) slurmctld:slurm-wlm munged:munge ssh-keygen:openssh-client tc:iproute2)

# A builder and a runtime of containers, and a library that steps clocks.
cluster-packages: packages
	@$(call install_missing,podman:podman crun:crun mmdebstrap:mmdebstrap faketime:faketime ch-run:charliecloud mpiexec:openmpi-bin sshd:openssh-server)

# TensorFlow (1.6 GB) and MindSpore (2.8 GB), each in an environment of its own: minutes.
test-frameworks: $(VENV)/.installed-examples .venv-tensorflow/.installed .venv-mindspore/.installed
	$(PYTEST) -q -n 2 -m frameworks tests/examples tests/frameworks tests/train/backends
	.venv-tensorflow/bin/pytest -q -m frameworks tests/frameworks/test_tensorflow.py
	.venv-mindspore/bin/pytest -q -m frameworks tests/frameworks/test_mindspore.py

.venv-tensorflow/.installed .venv-mindspore/.installed: .venv-%/.installed: pyproject.toml constraints.txt
	@echo "installing $* and what its tests need: minutes …"
	@test -x .venv-$*/bin/python || $(PYTHON) -m venv .venv-$*
	@.venv-$*/bin/pip install -q --no-compile "torch==2.13.0"
	@.venv-$*/bin/pip install -q --no-compile -e . hypothesis pytest $(if $(filter tensorflow,$*),tensorflow-cpu,$*)
	@touch $@

# On a machine with a GPU; CI has none. Commit the record that it writes with the change.
test-gpu: $(VENV)/.installed-dev
	$(BIN)/python -m tools.gpu_tests

# What must hold before a release, but not for every change: the GPU tests passed on this code.
release-check: $(VENV)/.installed-dev
	$(BIN)/python -m tools.gpu_tests --check

# Parts of the tests on machines unlike this one; ROWS="umask-077 one-core" chooses rows, and
# TESTS="tests/record" runs these tests instead of the rows' own. uv makes the environments of other
# versions of Python and of the dependencies, several GB each.
test-machines: $(VENV)/.installed-dev packages
	@$(BIN)/pip install -q uv
	$(BIN)/python -m tools.test_machines $(ROWS) $(if $(TESTS),--tests $(TESTS))

# Every night: 10,000 damaged inputs for every reader, others each day; SEED=20260131 repeats those of a day.
fuzz: MUTATIONS ?= 10000
fuzz: SEED ?= $(shell date +%Y%m%d)
fuzz: $(VENV)/.installed-dev
	VFLOPS_FUZZ=$(MUTATIONS) VFLOPS_FUZZ_SEED=$(SEED) $(BIN)/pytest -n auto tests/record/test_fuzz.py

# The tests check the imports between rooms too (tools/rooms.py).
check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The documentation as a site in site/; a broken link or an unknown name in the API reference fails.
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

# torch first and alone: the constraint pins the version, so nothing pulls in another build of it. The pinned
# Triton is the one of that torch.
$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing torch and what vflops needs: about a minute …"
	@$(PIP_INSTALL) "torch==2.13.0"
	@$(PIP_INSTALL) -e .
	@$(COMPILE)
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "installing what the tests need …"
	@$(PIP_INSTALL) -e ".[dev]"
	@$(COMPILE)
	touch $@

$(VENV)/.installed-examples: $(VENV)/.installed-dev
	@echo "installing what the examples need …"
	@$(PIP_INSTALL) -e ".[examples]"
	touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	@echo "installing what the documentation needs …"
	@$(BIN)/pip install -q -e ".[docs]"
	touch $@

clean:
	rm -rf $(VENV) .venv-* runs site test-machines image
