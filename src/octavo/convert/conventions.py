"""What differs between the two formats for one and the same model, family by family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from octavo.errors import UnsupportedError
from octavo.models import ModelConfig
from octavo.weights import Checkpoint

MODEL_TYPE_KEY = "octavo.model_type"
"""Metadata key of config.json's model_type, where one GGUF architecture stands for several."""


@dataclass(frozen=True)
class Conventions:
    """How a family's GGUF files differ from its Hugging Face folders.

    architecture: GGUF's name. pairs: rows of q and k are reordered, from halves of a head to
    interleaved pairs. unit_norms: norm weights include the 1 that Hugging Face's leave out.
    turned: weights that Hugging Face stores [in, out]. by_head: joined q, k and v lie head by head
    in Hugging Face's files. head_required: llama.cpp wants output.weight even where it is the
    embedding. json_type: config.json's model_type, if not GGUF's name; windowed: it and the class
    with a sliding window. labelled: the class of a model that gives labels. shared: several types
    have this GGUF architecture, and a key says which it was.
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
    labelled: str = ""
    shared: bool = False

    def model_type(self, config: ModelConfig) -> str:
        """config.json's model_type of a config; some have another one with a sliding window."""
        if self.windowed and config.sliding_window is not None:
            return self.windowed[0]
        return self.json_type or self.architecture

    def transformers_class(self, config: ModelConfig) -> str:
        """config.json's `architectures`."""
        if config.encoder is not None and config.encoder.num_labels:
            return self.labelled
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
    "falcon": Conventions("falcon", "FalconForCausalLM", by_head=True),
    "opt": Conventions("opt", "OPTForCausalLM"),
    "bitnet": Conventions("bitnet", "BitNetForCausalLM"),  # the first ones, with SiLU
    "bitnet-b1.58": Conventions("bitnet-b1.58", "BitNetForCausalLM", json_type="bitnet"),
}
"""Keyed by ModelConfig.architecture, the family key of models/registry.py."""


MIXTURES: Mapping[str, Conventions] = {
    "llama": Conventions("llama", "MixtralForCausalLM", pairs=True, json_type="mixtral"),
    "qwen2moe": Conventions("qwen2moe", "Qwen2MoeForCausalLM", json_type="qwen2_moe"),
    "qwen3moe": Conventions("qwen3moe", "Qwen3MoeForCausalLM", json_type="qwen3_moe"),
    "olmoe": Conventions("olmoe", "OlmoeForCausalLM", head_required=True),
    "granitemoe": Conventions("granitemoe", "GraniteMoeForCausalLM", pairs=True),
    "granitemoeshared": Conventions(
        "granitemoe", "GraniteMoeSharedForCausalLM", pairs=True, json_type="granitemoeshared"
    ),
    "gptoss": Conventions("gpt-oss", "GptOssForCausalLM", json_type="gpt_oss"),
    "deepseek_v2": Conventions("deepseek2", "DeepseekV2ForCausalLM", json_type="deepseek_v2"),
    "deepseek_v3": Conventions("deepseek2", "DeepseekV3ForCausalLM", json_type="deepseek_v3"),
}
"""The same of models with experts."""


def _bert(model_type: str, stem: str) -> Conventions:
    return Conventions(
        "bert",
        f"{stem}Model",
        json_type=model_type,
        labelled=f"{stem}ForSequenceClassification",
        shared=True,
    )


ENCODERS: Mapping[str, Conventions] = {
    "bert": _bert("bert", "Bert"),
    "roberta": _bert("roberta", "Roberta"),
    "xlm-roberta": _bert("xlm-roberta", "XLMRoberta"),
    "camembert": _bert("camembert", "Camembert"),
    "distilbert": _bert("distilbert", "DistilBert"),
    "nomic_bert": Conventions(
        "nomic-bert",
        "NomicBertModel",
        json_type="nomic_bert",
        labelled="NomicBertForSequenceClassification",
    ),
    "modernbert": Conventions(
        "modern-bert",
        "ModernBertModel",
        json_type="modernbert",
        labelled="ModernBertForSequenceClassification",
    ),
}
"""The same of encoders, by config.json's model_type."""


def conventions_of(config: ModelConfig, checkpoint: Checkpoint) -> Conventions:
    """The conventions of a checkpoint. Raises UnsupportedError naming the families there are."""
    if config.encoder is not None:
        found = ENCODERS.get(_encoder_type(config, checkpoint))
    elif config.mixture is not None or config.latent is not None:
        found = MIXTURES.get(_mixture_type(config))
    else:
        squared = config.architecture == "bitnet" and config.activation == "relu2"
        found = CONVENTIONS.get("bitnet-b1.58" if squared else config.architecture)
    if found is None:
        known = ", ".join(sorted({*CONVENTIONS, *MIXTURES, *ENCODERS}))
        raise UnsupportedError(
            f"convert: {config.name} is of family '{config.architecture}', which has no form in the"
            f" other format here; convertible: {known}"
        )
    return found


def _encoder_type(config: ModelConfig, checkpoint: Checkpoint) -> str:
    """config.json's model_type; of a GGUF file that does not say it, what fits its tensors."""
    if checkpoint.format != "gguf":
        return str(checkpoint.metadata.get("model_type"))
    if config.architecture != "bert":
        return config.architecture.replace("-", "_")
    said = checkpoint.metadata.get(MODEL_TYPE_KEY)
    if isinstance(said, str) and said in ENCODERS and ENCODERS[said].architecture == "bert":
        return said
    return "bert" if config.encoder and config.encoder.num_types else "distilbert"


def _mixture_type(config: ModelConfig) -> str:
    mixture = config.mixture
    if config.architecture == "deepseek2":
        by_sigmoid = mixture is not None and mixture.routing.scores == "sigmoid"
        return "deepseek_v3" if by_sigmoid else "deepseek_v2"
    if config.architecture == "granitemoe" and mixture is not None and mixture.shared_size:
        return "granitemoeshared"
    return config.architecture
