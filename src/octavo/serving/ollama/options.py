"""The `options` of a request, and the sampling parameters they become."""

from __future__ import annotations

from typing import Any

from octavo.decoding import SamplingParams
from octavo.decoding.grammar import Grammar
from octavo.errors import InvalidParameterError
from octavo.serving.body import StrictModel, keep_known
from octavo.serving.errors import invalid

# How a model is loaded, which the server's flags say here.
HARMLESS = frozenset(
    {
        *("f16_kv", "low_vram", "main_gpu", "num_batch", "num_gpu", "num_keep", "num_thread"),
        *("numa", "use_mlock", "use_mmap"),
    }
)
IDLE: dict[str, tuple[Any, ...]] = {
    "embedding_only": (False,),
    "logits_all": (False,),
    "mirostat": (0,),
    "mirostat_eta": (0.1,),
    "mirostat_tau": (5, 5.0),
    "penalize_newline": (True,),
    "tfs_z": (1, 1.0),
    "typical_p": (1, 1.0),
    "vocab_only": (False,),
}
WHOLE = -1  # repeat_last_n: the whole context
NAMES = {  # ours: the protocol's
    "max_tokens": "num_predict",
    "repetition_penalty": "repeat_penalty",
}


class OptionsBody(StrictModel):
    """Options that change the answer. Defaults are Ollama's, but repeat_penalty's, which is 1.

    num_ctx: the context the client counts on; more than the model serves is refused.
    num_predict: -1 or -2 for as many tokens as the context holds.
    """

    num_ctx: int | None = None
    num_predict: int | None = None
    seed: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repeat_penalty: float | None = None
    repeat_last_n: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    stop: str | list[str] | None = None


def drop_idle_options(data: dict[str, Any]) -> dict[str, Any]:
    """A body without options that ask for nothing. Raises 400 for others that are not known."""
    options = data.get("options")
    if not isinstance(options, dict):
        return data
    kept = keep_known(options, OptionsBody.model_fields, HARMLESS, IDLE, within="options.")
    return {**data, "options": kept}


def sampling_params(
    options: OptionsBody | None,
    form: str | dict[str, Any] | None,
    num_logprobs: int | None,
    context: int,
) -> SamplingParams:
    """form: the body's format; context: tokens that prompt and answer may have together. Raises
    ApiError naming the option."""
    options = options or OptionsBody()
    if options.num_ctx is not None and options.num_ctx > context:
        message = f"options.num_ctx: got {options.num_ctx}, but this server's context is {context}"
        raise invalid("options.num_ctx", message)
    given = {
        "max_tokens": _limit(options),
        "temperature": 0.8 if options.temperature is None else options.temperature,
        "top_k": 40 if options.top_k is None else options.top_k,
        "top_p": 0.9 if options.top_p is None else options.top_p,
        "min_p": options.min_p,
        "seed": options.seed,
        "stop": options.stop,
        "repetition_penalty": _repeat_penalty(options),
        "presence_penalty": options.presence_penalty,
        "frequency_penalty": options.frequency_penalty,
        "logprobs": num_logprobs,
        "grammar": _grammar(form),
    }
    kept: dict[str, Any] = {k: v for k, v in given.items() if v is not None or k == "max_tokens"}
    try:
        return SamplingParams(**kept)
    except InvalidParameterError as error:
        name = NAMES.get(error.param, error.param)
        name = name if name == "format" else f"options.{name}"
        raise invalid(name, str(error).replace(f"{error.param}:", f"{name}:", 1)) from None


def _limit(options: OptionsBody) -> int | None:
    limit = options.num_predict
    if limit is None or limit in (-1, -2):
        return None
    if limit < 1:
        name = "options.num_predict"
        raise invalid(name, f"{name}: got {limit}, expected at least 1, or -1 for no limit")
    return limit


def _repeat_penalty(options: OptionsBody) -> float | None:
    """The penalty covers the whole context, so that other windows are refused."""
    window, penalty = options.repeat_last_n, options.repeat_penalty
    if window == 0 or penalty in (None, 1):
        return None
    if window not in (None, WHOLE):
        name = "options.repeat_last_n"
        raise invalid(name, f"{name}: got {window}, but only 0 and -1 (all) are supported")
    return penalty


def _grammar(form: str | dict[str, Any] | None) -> Grammar | None:
    if form is None or form == "":
        return None
    if form == "json":
        return Grammar.json_object(param="format")
    return Grammar.from_schema(form, param="format")
