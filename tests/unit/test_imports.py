"""What is loaded when: counted in modules, never in seconds."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "triton", "matplotlib", "pandas", "tensorflow")
SERVER = ("fastapi", "starlette", "uvicorn", "zmq", "pydantic", "prometheus_client", "openai")


def _loaded_after(statement: str) -> set[str]:
    """Top-level names in sys.modules after the statement, in a fresh interpreter."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    return {name.partition(".")[0] for name in json.loads(output.splitlines()[-1])}


def test_import_octavo_loads_nothing_that_computes():
    loaded = _loaded_after("import octavo")
    assert not loaded & {*HEAVY, *SERVER, "numpy", "tokenizers", "jinja2", "rich", "typer"}


def test_help_loads_nothing_that_computes():
    loaded = _loaded_after(
        "import typer\nfrom octavo.cli.app import app\n"
        "for _ in typer.main.get_command(app).commands.values(): pass"
    )
    assert not loaded & {*HEAVY, *SERVER, "numpy", "tokenizers", "jinja2", "huggingface_hub"}


def test_one_command_loads_no_other():
    code = (
        "import typer, sys\nfrom octavo.cli.app import app\n"
        "typer.main.get_command(app).commands['version']\n"
        "print([name for name in sys.modules if name.startswith('octavo.cli.')])"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert "octavo.cli.version" in output
    assert "octavo.cli.serve" not in output
    assert "octavo.cli.run" not in output


@pytest.mark.parametrize("module", ["octavo.engine", "octavo.cli.session", "octavo.cli.run"])
def test_running_a_model_needs_no_server(module):
    code = (
        f"import {module}\nfrom octavo import LLM, SamplingParams\nfrom octavo.engine import Engine"
    )
    assert not _loaded_after(code) & {*HEAVY, *SERVER, "huggingface_hub"}
