"""Fields of OpenAI's and vLLM's request bodies that this server has no use for.

A field is never ignored in silence if it could change the answer: harmless ones are dropped, a
value that asks for nothing is dropped, and everything else is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from octavo.serving.body import keep_known

# They label or route a request; the answer is the same without them.
HARMLESS = frozenset(
    {
        "guided_decoding_backend",
        "metadata",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "session_id",
        "store",
        "user",
    }
)

# Known but not supported: the values besides null that ask for nothing.
UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "audio": (),
    "best_of": (1,),
    "detokenize": (True,),
    "ec_transfer_params": (),
    "flat_logprobs": (False,),
    "kv_transfer_params": (),
    "length_penalty": (1, 1.0),
    "media_io_kwargs": ({},),
    "mm_payload": (),
    "mm_processor_kwargs": ({},),
    "modalities": (["text"],),
    "prediction": (),
    "prompt_embeds": (),
    "prompt_logprob_start": (0,),
    "prompt_logprob_token_ids": (),
    "return_mm_kwargs": (False,),
    "return_prompt_text": (False,),
    "return_token_offsets": (False,),
    "return_weight_versions": (False,),
    "routed_experts_prompt_start": (),
    "stream_interval": (1,),
    "suffix": ("",),
    "thinking_token_budget": (),
    "use_beam_search": (False,),
    "verbosity": ("medium",),
    "vllm_xargs": ({},),
    "watermarking": (),
    "web_search_options": (),
}


def drop_idle_fields(data: dict[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """`data` without fields that ask for nothing. Raises 400 for a field outside `known` that asks
    for something."""
    return keep_known(data, known, HARMLESS, UNSUPPORTED)
