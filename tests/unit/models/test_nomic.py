"""nomic-bert's config.json, which its first files spell as GPT-2 does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from octavo.errors import FormatError
from octavo.models import config_from
from octavo.records import replace
from octavo.weights import open_checkpoint

FIXTURE = Path(__file__).parents[2] / "fixtures" / "encoders" / "nomic-bert"
FIRST = {
    "model_type": "nomic_bert",
    "architectures": ["NomicBertModel"],
    "n_embd": 32,
    "n_head": 4,
    "n_inner": 64,
    "n_layer": 2,
    "n_positions": 64,
    "vocab_size": 80,
    "type_vocab_size": 2,
    "activation_function": "swiglu",
    "layer_norm_epsilon": 1e-12,
    "prenorm": False,
    "rotary_emb_base": 1000,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_scaling_factor": None,
}


def test_the_first_spelling_says_the_same() -> None:
    checkpoint = open_checkpoint(FIXTURE)
    first = config_from(replace(checkpoint, metadata=FIRST))
    assert first == config_from(checkpoint)
    assert first.rope.base == 1000


@pytest.mark.parametrize(
    ("key", "value"),
    [("prenorm", True), ("rotary_emb_fraction", 0.5), ("rotary_scaling_factor", 2.0)],
)
def test_what_is_not_built(key: str, value: Any) -> None:
    checkpoint = replace(open_checkpoint(FIXTURE), metadata=FIRST | {key: value})
    with pytest.raises(FormatError, match=key):
        config_from(checkpoint)
