"""The tokenizers of the three demo models against ids and prompts computed by others."""

import json
from pathlib import Path

import pytest

from octavo.tokenizer import load_tokenizer
from octavo.weights import open_checkpoint, resolve

GOLDEN = Path(__file__).parents[1] / "golden" / "real"
MODELS = {
    "smollm2": "smollm2-135m-instruct",
    "gemma3-270m": "gemma3-270m",
    "qwen2.5-coder-1.5b": "qwen2.5-coder-1.5b-instruct",
}

pytestmark = pytest.mark.model


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    """(tokenizer, golden data) of one model."""
    tokenizer = load_tokenizer(open_checkpoint(resolve(request.param)))
    golden = json.loads((GOLDEN / f"{MODELS[request.param]}.json").read_text())
    return tokenizer, golden


def test_prompts_have_the_given_ids(model):
    """Ids equal, and they decode to the prompt again."""
    tokenizer, golden = model
    for case in golden["cases"]:
        assert case["prompt_ids"] == tokenizer.encode(case["prompt"])
        assert case["prompt"] == tokenizer.decode(case["prompt_ids"])


def test_continuations_decode_to_the_given_text(model):
    """Special tokens included, as the golden text has them."""
    tokenizer, golden = model
    for case in golden["cases"]:
        text = tokenizer.decode(case["greedy_ids"], skip_special_tokens=False)
        assert case["greedy_text"] == text


def test_conversations_render_as_given(model):
    """Templates equal to the last character."""
    tokenizer, golden = model
    for case in golden.get("chat", []):
        assert case["rendered"] == tokenizer.render_chat(case["messages"])
