"""Whether a request can be served at all. Refused here, it has cost nothing."""

from __future__ import annotations

from octavo.decoding.grammar import Grammar
from octavo.engine.options import EngineOptions
from octavo.engine.types import Request
from octavo.errors import InvalidParameterError, PromptTooLongError


def check_request(
    request: Request, vocab_size: int, max_model_len: int, max_rows: int, has_tokenizer: bool
) -> None:
    """Raise InvalidParameterError naming a bad parameter, or PromptTooLongError with the numbers
    if prompt and output can never fit in max_model_len tokens."""
    params = request.params
    _check_ids(request.prompt_ids, vocab_size)
    params.check_vocab(vocab_size)
    if params.n > max_rows:
        raise InvalidParameterError("n", f"got {params.n}, but this engine runs {max_rows} rows")
    if params.stop and not has_tokenizer:
        raise InvalidParameterError("stop", "this model has no tokenizer; use stop_token_ids")
    if params.bad_words and not has_tokenizer:
        raise InvalidParameterError("bad_words", "this model has no tokenizer to cut them up with")
    if params.grammar is not None:
        _check_grammar(params.grammar, has_tokenizer)
    num_prompt = len(request.prompt_ids)
    max_tokens = params.max_tokens
    if request.task != "generate" and num_prompt > max_model_len:
        raise PromptTooLongError(
            f"engine: the text has {num_prompt:,} tokens, but this model reads {max_model_len:,}; "
            "shorten it, or have it cut (truncate_prompt_tokens)"
        )
    if num_prompt + (1 if max_tokens is None else max_tokens) > max_model_len:
        asked = f" and max_tokens is {max_tokens:,}" if max_tokens else ""
        raise PromptTooLongError(
            f"engine: the prompt has {num_prompt:,} tokens{asked}, but prompt and output together "
            f"may have {max_model_len:,}; shorten the prompt or lower max_tokens"
        )


def queue_has_room(options: EngineOptions, num_waiting: int, num_tokens: int) -> bool:
    """Whether a request may join `num_waiting` others; num_tokens: its own and theirs. An empty
    queue takes any."""
    fits = num_waiting < options.max_queue and num_tokens <= options.max_queued_tokens
    return not num_waiting or fits


def check_task(request: Request, task: str) -> None:
    """Raise InvalidParameterError if the engine does not do what the request is about."""
    task = "generate" if task == "auto" else task
    if request.task != task:
        raise InvalidParameterError("model", refusal(request.task, task))


_WORKS = {
    "generate": "generating text",
    "embed": "embeddings (/v1/embeddings, /v1/score)",
    "score": "scoring pairs of texts (/v1/rerank, /v1/score)",
}


def refusal(wanted: str, task: str) -> str:
    """Why a request is not for this engine, and what is."""
    return f"is served for {_WORKS[task]} only, not for {_WORKS[wanted]}"


def _check_grammar(grammar: Grammar, has_tokenizer: bool) -> None:
    if not has_tokenizer:
        raise InvalidParameterError(grammar.param, "this model has no tokenizer to match text with")


def _check_ids(ids: list[int], vocab_size: int) -> None:
    if not ids:
        raise InvalidParameterError("prompt", "is empty; it needs at least one token")
    for token in (min(ids), max(ids)):
        if not 0 <= token < vocab_size:
            raise InvalidParameterError(
                "prompt", f"token id {token} is not in the vocabulary of {vocab_size:,}"
            )
