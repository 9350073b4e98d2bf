# Octavo: the commands a developer needs. `make help` lists them.
#
# Everything lives in .venv and build/. The package is built as a wheel and installed from it, so
# that the tests see what a user gets. The build runs inside .venv, not in pip's throw-away
# environment: there nanobind would sit at a new path every time and everything would be compiled
# again. So the build requirements are installed first, by asking pyproject.toml and the build
# backend for them (`build-requires` below); cmake and ninja come along where the machine has none.
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
MODEL ?= smollm2
PROMPT ?= Write a short poem about the sea.

SOURCES := CMakeLists.txt pyproject.toml README.md \
  $(shell find native src -name '*.cpp' -o -name '*.h' -o -name '*.py' -o -name '*.pyi')
NATIVE := $(shell find native -name '*.cpp' -o -name '*.h')
PYTHONS := src tests scripts benchmarks

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 14

.PHONY: demo
demo: build ## build, fetch a small model once, and let it talk
	@$(BIN)/octavo pull $(MODEL)
	@$(BIN)/octavo run $(MODEL) "$(PROMPT)" --max-tokens 96

.PHONY: build
build: $(VENV)/.installed ## build the package and install it into .venv

.PHONY: test
test: build $(VENV)/.dev ## build and run the whole test suite (ARGS="-k name" to choose)
	@$(BIN)/python -m pytest $(ARGS)

.PHONY: lint
lint: $(VENV)/.dev ## check style and types; changes nothing
	@$(BIN)/ruff check $(wildcard $(PYTHONS))
	@$(BIN)/ruff format --check $(wildcard $(PYTHONS))
	@$(BIN)/mypy
	@$(BIN)/clang-format --dry-run --Werror $(NATIVE)

.PHONY: format
format: $(VENV)/.dev ## rewrite the sources in the house style
	@$(BIN)/ruff check --fix $(wildcard $(PYTHONS))
	@$(BIN)/ruff format $(wildcard $(PYTHONS))
	@$(BIN)/clang-format -i $(NATIVE)

.PHONY: dev
dev: ## build the extension in place into src/octavo (PY=python with the build tools)
	cmake -S . -B build/dev -G Ninja -DPython_EXECUTABLE=$(shell which $(or $(PY),$(BIN)/python)) \
	  -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >/dev/null
	cmake --build build/dev
	@# a new file, so that what runs with the old one goes on
	cp --remove-destination build/dev/_native*.so src/octavo/

.PHONY: bench-peers
bench-peers: build $(VENV)/.bench ## measure Octavo beside llama.cpp (ARGS="smollm2 --repeat 5")
	@$(BIN)/python -m benchmarks.peers $(ARGS)

.PHONY: bench-quality
bench-quality: build $(VENV)/.bench ## measure Octavo's and llama.cpp's error against float32
	@$(BIN)/python -m benchmarks.quality $(ARGS)

.PHONY: wheel
wheel: $(VENV)/.build-requires ## build a wheel and an sdist into dist/
	@$(PIP) install build
	@$(BIN)/python -m build --no-isolation --outdir dist .

.PHONY: fuzz
fuzz: $(VENV)/.dev ## mutate GGUF files under the sanitizers (ROUNDS=300000)
	@mkdir -p build
	@$(CXX) -std=c++20 -g -O1 -Wall -Wextra -Werror -Inative -DOCTAVO_FUZZ_DRIVER \
	  -fsanitize=address,undefined -fno-sanitize-recover=all native/fuzz/gguf_fuzz.cpp \
	  native/gguf/reader.cpp native/gguf/dequantize.cpp \
	  native/kernels/dequantize_row.cpp native/kernels/grids.cpp -o build/gguf_fuzz
	@PYTHONPATH=src $(BIN)/python -m tests.support.gguf_file build
	@build/gguf_fuzz $(or $(ROUNDS),300000) build/seed.gguf build/types.gguf

.PHONY: clean
clean: ## remove everything that was built (not the downloaded models)
	rm -rf $(VENV) build dist src/octavo/_native*.so

$(VENV)/.created: scripts/toolchain.sh
	@python=$$(scripts/toolchain.sh) && echo "creating $(VENV) with $$python" && \
	  "$$python" -m venv $(VENV)
	@touch $@

$(VENV)/.build-requires: $(VENV)/.created pyproject.toml scripts/requirements.py
	@$(PIP) install $$($(BIN)/python scripts/requirements.py build)
	@requires=$$($(BIN)/python scripts/requirements.py build-dynamic); \
	  test -z "$$requires" || $(PIP) install $$requires
	@touch $@

$(VENV)/.installed: $(VENV)/.build-requires $(SOURCES)
	@scripts/toolchain.sh >/dev/null
	@echo "building octavo (the first time takes a few minutes)"
	@$(PIP) install '.[serve]' --no-build-isolation
	@touch $@

$(VENV)/.dev: $(VENV)/.created pyproject.toml scripts/requirements.py
	@$(PIP) install $$($(BIN)/python scripts/requirements.py dev)
	@touch $@

$(VENV)/.bench: $(VENV)/.created pyproject.toml scripts/requirements.py
	@$(PIP) install $$($(BIN)/python scripts/requirements.py bench)
	@touch $@
