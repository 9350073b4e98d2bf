"""The model families, and which files belong to which. Adding one is a file and a line here."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping

from msgspec import Struct

from octavo.errors import FormatError, UnsupportedError
from octavo.graph import Graph
from octavo.models import (
    bert,
    bitnet,
    cohere2,
    deepseek,
    falcon,
    gemma2,
    gemma3,
    glm4,
    gpt2,
    gptneox,
    gptoss,
    granite_moe,
    llama,
    modernbert,
    olmo2,
    opt,
    phi3,
    qwen2,
    qwen3,
    qwen_moe,
    stablelm,
    starcoder2,
)
from octavo.models.config import ModelConfig, validate_config
from octavo.models.gguf import read_gguf
from octavo.models.huggingface import read_config_json
from octavo.models.mixture import stack_experts
from octavo.models.source import Source
from octavo.records import replace
from octavo.weights.tensor import Checkpoint, Tensor


class Family(Struct, frozen=True):
    """names: what GGUF's general.architecture and config.json's model_type may say.

    adjust: completes the config that the common keys gave, from the family's own keys. fit: the
    file's tensors as the graph wants them (joined ones split).
    """

    key: str
    gguf_names: tuple[str, ...]
    json_names: tuple[str, ...]
    adjust: Callable[[ModelConfig, Source], ModelConfig]
    build: Callable[[ModelConfig, Mapping[str, Tensor]], Graph]
    fit: Callable[[ModelConfig, Checkpoint], Mapping[str, Tensor]] | None = None


FAMILIES: tuple[Family, ...] = (
    Family(
        "llama",
        ("llama",),
        ("llama", "mistral", "mixtral"),
        llama.adjust,
        llama.build,
        stack_experts,
    ),
    Family("qwen2", ("qwen2",), ("qwen2",), qwen2.adjust, qwen2.build),
    Family("qwen3", ("qwen3",), ("qwen3",), qwen2.adjust, qwen3.build),
    Family(
        "qwen2moe",
        ("qwen2moe",),
        ("qwen2_moe",),
        qwen_moe.adjust_qwen2,
        qwen_moe.build_qwen2,
        qwen_moe.fit,
    ),
    Family(
        "qwen3moe",
        ("qwen3moe",),
        ("qwen3_moe",),
        qwen_moe.adjust_qwen3,
        qwen_moe.build_qwen3,
        qwen_moe.fit,
    ),
    Family(
        "olmoe",
        ("olmoe",),
        ("olmoe",),
        qwen_moe.adjust_olmoe,
        qwen_moe.build_olmoe,
        qwen_moe.fit,
    ),
    Family(
        "granitemoe",
        ("granitemoe",),
        ("granitemoe", "granitemoeshared"),
        granite_moe.adjust,
        llama.build,
        granite_moe.fit,
    ),
    Family("gptoss", ("gpt-oss",), ("gpt_oss",), gptoss.adjust, gptoss.build, gptoss.fit),
    Family("gemma", ("gemma",), ("gemma",), gemma2.adjust_gemma, gemma2.build_gemma),
    Family("gemma2", ("gemma2",), ("gemma2",), gemma2.adjust, gemma2.build),
    Family("gemma3", ("gemma3",), ("gemma3_text", "gemma3"), gemma3.adjust, gemma3.build),
    Family("phi3", ("phi3",), ("phi3",), phi3.adjust, phi3.build, phi3.fit),
    Family("olmo2", ("olmo2",), ("olmo2", "olmo3"), olmo2.adjust, olmo2.build),
    Family("exaone4", ("exaone4",), ("exaone4",), olmo2.adjust_exaone4, olmo2.build_exaone4),
    Family("granite", ("granite",), ("granite",), llama.adjust_granite, llama.build),
    Family("smollm3", ("smollm3",), ("smollm3",), llama.adjust_smollm3, llama.build),
    Family("starcoder2", ("starcoder2",), ("starcoder2",), starcoder2.adjust, starcoder2.build),
    Family("stablelm", ("stablelm",), ("stablelm",), stablelm.adjust, stablelm.build),
    Family("cohere2", ("cohere2",), ("cohere2",), cohere2.adjust, cohere2.build),
    Family("gpt2", ("gpt2",), ("gpt2",), gpt2.adjust, gpt2.build, gpt2.fit),
    Family("gptneox", ("gptneox",), ("gpt_neox",), gptneox.adjust, gptneox.build, gptneox.fit),
    Family(
        "deepseek2",
        ("deepseek2",),
        ("deepseek_v2", "deepseek_v3"),
        deepseek.adjust,
        deepseek.build,
        deepseek.fit,
    ),
    Family("falcon", ("falcon",), ("falcon",), falcon.adjust, falcon.build, falcon.fit),
    Family(
        "bitnet",
        ("bitnet-b1.58", "bitnet-25", "bitnet"),
        ("bitnet",),
        bitnet.adjust,
        bitnet.build,
    ),
    Family("bert", ("bert",), ("bert",), bert.adjust, bert.build, bert.fit),
    Family(
        "xlm-roberta",
        (),
        ("xlm-roberta", "roberta", "camembert"),
        bert.adjust_roberta,
        bert.build,
        bert.fit,
    ),
    Family("distilbert", (), ("distilbert",), bert.adjust_distilbert, bert.build, bert.fit),
    Family(
        "nomic-bert",
        ("nomic-bert",),
        ("nomic_bert",),
        bert.adjust_nomic,
        bert.build_nomic,
        bert.fit_nomic,
    ),
    Family(
        "modernbert",
        ("modern-bert",),
        ("modernbert",),
        modernbert.adjust,
        modernbert.build,
        modernbert.fit,
    ),
    Family("opt", ("opt",), ("opt",), opt.adjust, opt.build),
    Family("glm4", ("glm4",), ("glm4",), glm4.adjust, glm4.build, glm4.fit),
)


def config_from(checkpoint: Checkpoint) -> ModelConfig:
    """Read the hyperparameters. Raises FormatError naming a bad key, UnsupportedError naming an
    architecture or setting that no family here covers."""
    is_gguf = checkpoint.format == "gguf"
    name = _architecture(checkpoint, "general.architecture" if is_gguf else "model_type")
    family = _family_of(checkpoint, name)
    if is_gguf:
        config, source = read_gguf(checkpoint, name, family.key)
    else:
        config, source = read_config_json(checkpoint, family.key)
    config = family.adjust(config, source)
    validate_config(config, str(checkpoint.path))
    return config


def fit_tensors(config: ModelConfig, checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint with its tensors as the family's graph wants them; views, not copies."""
    fit = family_of(config).fit
    if fit is None:
        return checkpoint
    return replace(checkpoint, tensors=fit(config, checkpoint))


def build_graph(config: ModelConfig, tensors: Mapping[str, Tensor]) -> Graph:
    """The checked graph of a model, of tensors that `fit_tensors` gave. Raises FormatError listing
    every tensor that is missing, unexpected or of a wrong shape."""
    return family_of(config).build(config, tensors)


def family_of(config: ModelConfig) -> Family:
    """The family that a config was read for."""
    for family in FAMILIES:
        if family.key == config.architecture:
            return family
    raise UnsupportedError(_unknown(config.name, config.architecture))


def _architecture(checkpoint: Checkpoint, key: str) -> str:
    name = checkpoint.metadata.get(key)
    if not isinstance(name, str) or not name:
        raise FormatError(f"{checkpoint.path}: '{key}': got {name!r}, expected an architecture")
    return name


def _family_of(checkpoint: Checkpoint, name: str) -> Family:
    for family in FAMILIES:
        names = family.gguf_names if checkpoint.format == "gguf" else family.json_names
        if name in names:
            return family
    raise UnsupportedError(_unknown(str(checkpoint.path), name))


def _unknown(where: str, name: str) -> str:
    known = sorted({n for f in FAMILIES for n in (f.key, *f.gguf_names, *f.json_names)})
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; the nearest is '{near[0]}'" if near else ""
    return f"{where}: architecture '{name}' is not supported; known: {', '.join(known)}{hint}"
