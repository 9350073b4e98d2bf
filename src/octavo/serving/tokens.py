"""Text to token ids and back: /tokenize, /detokenize, /apply-template, /tokenizer_info.

Shapes are vLLM's. llama.cpp's are understood where they differ: a body with "content" instead of
"prompt" is answered as llama-server would.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from octavo.serving.body import StrictModel, read_object, validate
from octavo.serving.context import Serving, off_loop, serving_of
from octavo.serving.conversation import Conversation, render
from octavo.serving.errors import invalid
from octavo.serving.json import JsonResponse
from octavo.serving.openai.chat import conversation_of
from octavo.serving.openai.chat_protocol import ChatRequest
from octavo.serving.openai.fields import drop_idle_fields
from octavo.tokenizer import Tokenizer

MAX_TOKENS = 1_000_000  # of one /detokenize

router = APIRouter(tags=["Tokens"])


class TextBody(StrictModel):
    """POST /tokenize with a text. prompt is vLLM's name, content llama.cpp's."""

    model: str | None = None
    prompt: str | None = None
    content: str | None = None
    add_special_tokens: bool | None = None
    add_special: bool | None = None
    parse_special: bool | None = None
    return_token_strs: bool | None = None
    with_pieces: bool | None = None


class TokensBody(StrictModel):
    """POST /detokenize."""

    model: str | None = None
    tokens: list[int] = Field(max_length=MAX_TOKENS)
    skip_special_tokens: bool | None = None


@router.post("/tokenize")
@router.post("/v1/tokenize", include_in_schema=False)
async def tokenize(request: Request) -> Response:
    """Token ids of a prompt, or of a conversation under the model's chat template."""
    serving, data = await _body(request)
    tokenizer = serving.need_tokenizer("prompt")
    if data.get("messages") is None:
        data.pop("messages", None)
    else:
        if data.get("prompt", data.get("content")) is not None:
            raise invalid("messages", "messages: give either a prompt or messages")
        shows = _taken(data, "return_token_strs")
        begins = _taken(data, "add_special_tokens")
        _, ids = await render(serving, _conversation(serving, data))
        if begins:
            ids = [*tokenizer.special.prefix_ids, *ids, *tokenizer.special.suffix_ids]
        return JsonResponse(_counted(serving, tokenizer, ids, shows))
    body = validate(TextBody, data)
    if body.content is not None:
        return JsonResponse(await _as_llama_cpp(tokenizer, body))
    if body.prompt is None:
        raise invalid("prompt", "prompt: is missing; give a prompt, or messages")
    ids = await _encode(tokenizer, body.prompt, body.add_special_tokens is not False, body)
    return JsonResponse(_counted(serving, tokenizer, ids, bool(body.return_token_strs)))


@router.post("/detokenize")
@router.post("/v1/detokenize", include_in_schema=False)
async def detokenize(request: Request) -> Response:
    """The text of token ids, special tokens as they are written unless they are to be skipped."""
    serving, data = await _body(request)
    tokenizer = serving.need_tokenizer("tokens")
    body = validate(TokensBody, data)
    for place, token in enumerate(body.tokens):
        if not 0 <= token < tokenizer.vocab_size:
            size = f"{tokenizer.vocab_size:,}"
            raise invalid("tokens", f"tokens[{place}]: {token} is not in the vocabulary of {size}")
    skip = bool(body.skip_special_tokens)

    def decode() -> str:
        return tokenizer.decode(body.tokens, skip_special_tokens=skip)

    text = await off_loop(4 * len(body.tokens), decode)
    return JsonResponse({"prompt": text, "content": text})


@router.post("/apply-template")
async def apply_template(request: Request) -> Response:
    """The prompt that a chat completion with this body would run."""
    serving, data = await _body(request)
    text, _ = await render(serving, _conversation(serving, data))
    return JsonResponse({"prompt": text})


@router.get("/tokenizer_info")
async def tokenizer_info(request: Request) -> Response:
    """What a client must know to count tokens as this server does."""
    serving = serving_of(request)
    serving.check_ready()
    tokenizer = serving.need_tokenizer("tokenizer")
    names = dict(tokenizer.special.named)
    eos = tokenizer.eos_token_ids
    return JsonResponse(
        {
            "tokenizer_class": type(tokenizer).__name__,
            "vocab_size": tokenizer.vocab_size,
            "model_max_length": _max_model_len(serving),
            "add_bos_token": tokenizer.add_bos,
            "bos_token": names.get("bos_token"),
            "eos_token": names.get("eos_token") or (_piece(tokenizer, eos[0]) if eos else None),
            "pad_token": names.get("pad_token"),
            "unk_token": names.get("unk_token"),
            "bos_token_id": tokenizer.bos_token_id,
            "eos_token_id": eos[0] if eos else None,
            "eos_token_ids": list(eos),
            "chat_template": tokenizer.chat_template,
        }
    )


async def _body(request: Request) -> tuple[Serving, dict[str, Any]]:
    serving = serving_of(request)
    data = await read_object(request, serving.options.max_body_bytes)
    model = data.get("model")
    if model is not None:
        if not isinstance(model, str):
            raise invalid("model", "model: expected a string")
        serving.check_model(model)
    serving.check_ready()
    return serving, data


def _conversation(serving: Serving, data: dict[str, Any]) -> Conversation:
    """The conversation of a chat completion's body; the model may be left out."""
    data = {**data, "model": data.get("model") or serving.names[0]}
    return conversation_of(validate(ChatRequest, drop_idle_fields(data, ChatRequest.model_fields)))


def _taken(data: dict[str, Any], name: str) -> bool:
    """Take a boolean out of a body."""
    value = data.pop(name, None)
    if value is not None and not isinstance(value, bool):
        raise invalid(name, f"{name}: expected true or false")
    return bool(value)


def _counted(
    serving: Serving, tokenizer: Tokenizer, ids: list[int], shows_pieces: bool
) -> dict[str, Any]:
    return {
        "count": len(ids),
        "max_model_len": _max_model_len(serving),
        "tokens": ids,
        "token_strs": [_piece(tokenizer, i) for i in ids] if shows_pieces else None,
    }


async def _as_llama_cpp(tokenizer: Tokenizer, body: TextBody) -> dict[str, Any]:
    ids = await _encode(tokenizer, body.content or "", bool(body.add_special), body)
    if not body.with_pieces:
        return {"tokens": ids}
    return {"tokens": [{"id": i, "piece": _piece_or_bytes(tokenizer, i)} for i in ids]}


async def _encode(tokenizer: Tokenizer, text: str, special: bool, body: TextBody) -> list[int]:
    def encode() -> list[int]:
        return tokenizer.encode(
            text, add_special_tokens=special, parse_special=body.parse_special is not False
        )

    return await off_loop(len(text), encode)


def _piece(tokenizer: Tokenizer, token: int) -> str:
    return tokenizer.token_bytes(token).decode("utf-8", "replace")


def _piece_or_bytes(tokenizer: Tokenizer, token: int) -> str | list[int]:
    """A piece that is not text by itself goes out as its bytes."""
    raw = tokenizer.token_bytes(token)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return list(raw)


def _max_model_len(serving: Serving) -> int | None:
    info = serving.client.ready_info
    return None if info is None else info.max_model_len
