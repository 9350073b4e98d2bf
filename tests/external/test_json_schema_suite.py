"""JSON-Schema-Test-Suite, draft 2020-12, through the grammar compiler.

For each case the schema is compiled and the instance's JSON text is fed to it. The baseline lists
what is not as the suite says, by how bad it is: a schema may be refused (by name), a valid instance
rejected, an invalid one accepted. A change may only improve on it.

To write the baseline anew: OCTAVO_WRITE_BASELINE=1 pytest tests/external/test_json_schema_suite.py
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from octavo.decoding import Grammar
from octavo.decoding.grammar_compiler import CompiledGrammar, GrammarCompiler
from octavo.errors import InvalidParameterError
from tests.support.sdist import sdist_files

REQUIREMENT = "jsonschema==4.26.0"
BASELINE = Path(__file__).with_name("json_schema_baseline.json")
BADNESS = ("pass", "compile-error", "false-negative", "false-positive")
FEWEST = 1250
"""Cases that must be judged."""


@pytest.fixture(scope="module")
def results() -> dict[str, str]:
    """Outcome by "file / group / case"."""
    folder = sdist_files(REQUIREMENT, "json/tests/draft2020-12/")
    found: dict[str, str] = {}
    for path in sorted(folder.glob("*.json")):
        for group in json.loads(path.read_text(encoding="utf-8")):
            compiled = _compile(group["schema"])
            for case in group["tests"]:
                name = f"{path.stem} / {group['description']} / {case['description']}"
                while name in found:
                    name += "'"
                found[name] = _judge(compiled, case["data"], case["valid"])
    return found


def _compile(schema: Any) -> CompiledGrammar | None:
    try:
        return GrammarCompiler.for_bytes().compile(Grammar.from_schema(schema))
    except InvalidParameterError:
        return None


def _judge(compiled: CompiledGrammar | None, instance: Any, valid: bool) -> str:
    if compiled is None:
        return "compile-error"
    matcher = compiled.new_matcher()
    data = json.dumps(instance, ensure_ascii=False).encode()
    accepted = all(matcher.try_advance(byte) for byte in data) and matcher.can_end
    if accepted == valid:
        return "pass"
    return "false-positive" if accepted else "false-negative"


def test_nothing_is_worse_than_the_baseline(results: dict[str, str]) -> None:
    if os.environ.get("OCTAVO_WRITE_BASELINE"):
        other = {name: outcome for name, outcome in results.items() if outcome != "pass"}
        BASELINE.write_text(json.dumps(other, indent=0, ensure_ascii=False) + "\n", "utf-8")
    baseline: dict[str, str] = json.loads(BASELINE.read_text(encoding="utf-8"))
    worse = {
        name: f"{baseline.get(name, 'pass')} -> {outcome}"
        for name, outcome in results.items()
        if BADNESS.index(outcome) > BADNESS.index(baseline.get(name, "pass"))
    }
    assert worse == {}
    assert baseline.keys() <= results.keys()


def test_enough_is_judged_and_most_of_it_passes(results: dict[str, str]) -> None:
    counts = Counter(results.values())
    assert len(results) >= FEWEST
    assert counts["pass"] >= 750, counts
