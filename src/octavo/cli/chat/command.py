"""`octavo chat`: options, then the loop."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from octavo.cli.chat.conversation import Conversation
from octavo.cli.options import (
    Backend,
    EngineChoices,
    KvDtype,
    KvMemory,
    Lora,
    MaxModelLen,
    MaxTokens,
    MinP,
    ModelArg,
    Products,
    RepetitionPenalty,
    Seed,
    Stop,
    System,
    Temperature,
    Threads,
    TopK,
    TopP,
    Verbose,
    Weights,
    sampling_params,
)
from octavo.errors import TemplateError

if TYPE_CHECKING:
    from octavo.cli.session import Session
    from octavo.decoding import SamplingParams


def chat(
    model: ModelArg,
    system: System = None,
    verbose: Verbose = False,
    max_tokens: MaxTokens = 1024,
    temperature: Temperature = 0.7,
    top_k: TopK = 0,
    top_p: TopP = 0.95,
    min_p: MinP = 0.0,
    repetition_penalty: RepetitionPenalty = 1.0,
    seed: Seed = None,
    stop: Stop = None,
    threads: Threads = 0,
    backend: Backend = "cpu",
    weights: Weights = "native",
    kv_dtype: KvDtype = "auto",
    products: Products = "auto",
    max_model_len: MaxModelLen = None,
    kv_cache_memory: KvMemory = None,
    lora: Lora = None,
) -> None:
    """Talk with a model. /help inside lists the commands; Ctrl-C stops an answer.

    [bold]Example[/bold]

    octavo chat qwen2.5-coder-1.5b --system "You are terse."
    """
    from octavo.cli.session import Session

    params = sampling_params(
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        seed=seed,
        stop=stop,
    )
    choices = EngineChoices(
        threads, backend, weights, kv_dtype, max_model_len, kv_cache_memory, lora, products
    )
    session = Session.open(model, choices)
    if verbose:
        print(session.engine.plan, file=sys.stderr)
    try:
        if session.tokenizer.chat_template is None:
            raise TemplateError(f"chat: {model} has no chat template; octavo run continues text")
        _talk(session, params, Conversation(system))
    finally:
        session.close()


def _talk(session: Session, params: SamplingParams, conversation: Conversation) -> None:
    from platformdirs import user_state_path

    from octavo.cli.chat.loop import Chat
    from octavo.cli.chat.reader import terminal_reader

    name = session.engine.config.name or session.engine.options.model
    print(f"{name} is ready. /help lists the commands.", file=sys.stderr)
    ask = terminal_reader(user_state_path("octavo") / "chat_history")
    Chat(session, params, conversation, ask).run()
