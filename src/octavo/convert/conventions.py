"""What differs between the two formats for one and the same model, family by family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from octavo.errors import UnsupportedError
from octavo.models import ModelConfig


@dataclass(frozen=True)
class Conventions:
    """How a family's GGUF files differ from its Hugging Face folders.

    architecture: GGUF's name. pairs: rows of q and k are reordered, from halves of a head to
    interleaved pairs. unit_norms: norm weights include the 1 that Hugging Face's leave out.
    turned: weights that Hugging Face stores [in, out]. by_head: joined q, k and v lie head by head
    in Hugging Face's files. head_required: llama.cpp wants output.weight even where it is the
    embedding. model_type: config.json's name for a config.
    """

    architecture: str
    class_name: str
    pairs: bool = False
    unit_norms: bool = False
    turned: tuple[str, ...] = ()
    by_head: bool = False
    head_required: bool = False
    windowed: tuple[str, str] | None = None
    json_type: str | None = None

    def model_type(self, config: ModelConfig) -> str:
        """config.json's model_type of a config; some have another one with a sliding window."""
        if self.windowed and config.sliding_window is not None:
            return self.windowed[0]
        return self.json_type or self.architecture

    def transformers_class(self, config: ModelConfig) -> str:
        """config.json's `architectures`."""
        if self.windowed and config.sliding_window is not None:
            return self.windowed[1]
        return self.class_name


_GPT2_TURNED = ("attn_qkv", "attn_output", "ffn_up", "ffn_down")

CONVENTIONS: Mapping[str, Conventions] = {
    "llama": Conventions(
        "llama", "LlamaForCausalLM", pairs=True, windowed=("mistral", "MistralForCausalLM")
    ),
    "smollm3": Conventions("smollm3", "SmolLM3ForCausalLM", pairs=True),
    "granite": Conventions("granite", "GraniteForCausalLM", pairs=True),
    "qwen2": Conventions("qwen2", "Qwen2ForCausalLM"),
    "qwen3": Conventions("qwen3", "Qwen3ForCausalLM"),
    "gemma": Conventions("gemma", "GemmaForCausalLM", unit_norms=True),
    "gemma2": Conventions("gemma2", "Gemma2ForCausalLM", unit_norms=True),
    "gemma3": Conventions("gemma3", "Gemma3ForCausalLM", unit_norms=True, json_type="gemma3_text"),
    "phi3": Conventions("phi3", "Phi3ForCausalLM"),
    "olmo2": Conventions(
        "olmo2",
        "Olmo2ForCausalLM",
        head_required=True,
        windowed=("olmo3", "Olmo3ForCausalLM"),
    ),
    "exaone4": Conventions("exaone4", "Exaone4ForCausalLM"),
    "glm4": Conventions("glm4", "Glm4ForCausalLM"),
    "cohere2": Conventions("cohere2", "Cohere2ForCausalLM"),
    "starcoder2": Conventions("starcoder2", "Starcoder2ForCausalLM"),
    "stablelm": Conventions("stablelm", "StableLmForCausalLM", head_required=True),
    "gpt2": Conventions("gpt2", "GPT2LMHeadModel", turned=_GPT2_TURNED),
    "gptneox": Conventions(
        "gptneox",
        "GPTNeoXForCausalLM",
        by_head=True,
        head_required=True,
        json_type="gpt_neox",
    ),
}
"""Keyed by ModelConfig.architecture, the family key of models/registry.py."""


MIXTURES: Mapping[str, Conventions] = {
    "llama": Conventions("llama", "MixtralForCausalLM", pairs=True, json_type="mixtral"),
    "qwen2moe": Conventions("qwen2moe", "Qwen2MoeForCausalLM", json_type="qwen2_moe"),
    "qwen3moe": Conventions("qwen3moe", "Qwen3MoeForCausalLM", json_type="qwen3_moe"),
    "olmoe": Conventions("olmoe", "OlmoeForCausalLM", head_required=True),
    "granitemoe": Conventions("granitemoe", "GraniteMoeForCausalLM", pairs=True),
    "gptoss": Conventions("gpt-oss", "GptOssForCausalLM", json_type="gpt_oss"),
}
"""The same of models with experts, whose stacks are written to GGUF and not taken apart again."""


def conventions_of(config: ModelConfig) -> Conventions:
    """The family's conventions. Raises UnsupportedError naming those that can be converted."""
    found = (CONVENTIONS if config.mixture is None else MIXTURES).get(config.architecture)
    if found is None:
        raise UnsupportedError(
            f"convert: {config.name} is of family '{config.architecture}', which has no form in the"
            f" other format here; convertible: {', '.join(CONVENTIONS)}"
        )
    return found
