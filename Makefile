# `make run` and `make test` do all the set-up from a fresh clone; a second call sets up nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: run test packages check format clean

# Exit code 1 is a run that measured all but does not meet a rule, which its summary names.
run: $(VENV)/.installed
	@$(BIN)/vflops run || [ $$? = 1 ]

# Threads that wait do not spin: trainings of several tests share the cores.
test: $(VENV)/.installed-dev packages check
	OMP_WAIT_POLICY=passive $(BIN)/pytest -n 2

# What the tests use besides Python: a browser. Installed where one may; else those tests skip.
packages:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; } || \
	echo "chromium is missing and cannot be installed here: the browser tests will skip"

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# torch first and alone: the constraint pins the version, so nothing pulls in another build of it.
$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing torch and what vflops needs: about a minute …"
	@$(BIN)/pip install -q "torch==2.13.0"
	@$(BIN)/pip install -q -e .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "installing what the tests need …"
	@$(BIN)/pip install -q -e ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) runs
