# Octavo: the commands a developer needs. `make help` lists them.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 12

.PHONY: dev
dev: ## build the extension in place into src/octavo (PY=python with the build tools)
	cmake -S . -B build/dev -G Ninja -DPython_EXECUTABLE=$(shell which $(or $(PY),$(BIN)/python)) \
	  -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >/dev/null
	cmake --build build/dev
	cp build/dev/_native*.so src/octavo/
