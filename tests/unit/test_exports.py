"""Each package's door says exactly what is public."""

from __future__ import annotations

import importlib

import pytest

import octavo

PACKAGES = [
    "backends",
    "batch",
    "bench",
    "cache",
    "cli",
    "convert",
    "decoding",
    "engine",
    "eval",
    "graph",
    "models",
    "parsing",
    "quantize",
    "scheduler",
    "serving",
    "tokenizer",
    "weights",
]


def test_octavo_exports_what_the_readme_shows():
    assert {"LLM", "SamplingParams", "Engine", "AsyncEngine", "OctavoError"} < set(octavo.__all__)
    assert all(hasattr(octavo, name) for name in octavo.__all__)
    assert set(octavo.__all__) <= set(dir(octavo))


@pytest.mark.parametrize("name", PACKAGES)
def test_door_lists_names_that_exist(name: str):
    door = importlib.import_module(f"octavo.{name}")
    assert door.__doc__
    assert "TODO" not in door.__doc__
    assert len(set(door.__all__)) == len(door.__all__)
    assert all(hasattr(door, public) for public in door.__all__)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing"):
        octavo.nothing  # noqa: B018
