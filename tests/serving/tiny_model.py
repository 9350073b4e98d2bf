"""A model folder for the null backend: one token a byte, a chat template, scripted answers.

After any text the null backend writes the printable characters in order, starting behind the last
one of the prompt (behind a line break: "A"), and ends with the end token after "~". But if a
message before the answer has "say:" in it, the answer is what stands behind it, to the message's
end. It is so sure of itself that it writes this at the usual temperature, too, whatever the seed:
a test that wants answers to differ asks for VARIED or more.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from tokenizers.pre_tokenizers import ByteLevel

from octavo.backends import BACKENDS
from octavo.backends.base import BackendOptions, Executable, Floats, Step
from octavo.backends.null import NullBackend, NullExecutable
from octavo.engine.engine import Engine
from octavo.engine.options import EngineOptions
from octavo.engine.worker import Progress, load_engine
from octavo.graph import Graph
from octavo.models.config import ModelConfig
from octavo.weights.tensor import Checkpoint

VOCAB_SIZE = 320
START, END = 256, 257
LAST = ord("~")
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_tiny_model(
    folder: Path, context: int = 4096, control: tuple[str, ...] = (), template: str = TEMPLATE
) -> Path:
    """Write the folder and return it. control: further control tokens, from id 300 on."""
    folder.mkdir(parents=True, exist_ok=True)
    golden = Path(__file__).parent.parent / "golden" / "tiny" / "llama"
    config = json.loads((golden / "config.json").read_text())
    config |= {"max_position_embeddings": context, "bos_token_id": 259, "eos_token_id": END}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes((golden / "model.safetensors").read_bytes())
    _byte_tokenizer(control).save(str(folder / "tokenizer.json"))
    settings = {"chat_template": template, "eos_token": "<|im_end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def _byte_tokenizer(control: tuple[str, ...]) -> Tokenizer:
    letters = _byte_letters()
    vocab = {letter: byte for byte, letter in letters.items()}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    names = ["<|im_start|>", "<|im_end|>", *(f"<|{i}|>" for i in range(258, VOCAB_SIZE))]
    names[44 : 44 + len(control)] = control
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in names])
    return tokenizer


def _byte_letters() -> dict[int, str]:
    """The letter that byte-level tokenizers write for each byte (GPT-2's table)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    table = {byte: chr(byte) for byte in plain}
    table |= {byte: chr(256 + place) for place, byte in enumerate(others)}
    assert set(table.values()) == set(ByteLevel.alphabet())
    return table


CLOSERS = (*b'"}],1', END)
"""Where a grammar forbids the wanted token: what ends a JSON value soonest, the best first."""
ESCAPED = (*b"n", END)
"""The same behind a backslash: a quote there would only begin the string all over again."""

PEAK = 80.0
"""Logit of the wanted token. What is not wanted has about 0, CLOSERS something between: each is
so much likelier than the next that temperature 1 writes what temperature 0 does."""

VARIED = 12.0
"""A temperature at which about every third token is another than the wanted one."""


def script(token: int, position: int) -> int:
    """The null backend's next token."""
    if 32 <= token < LAST:
        return token + 1
    return END if token == LAST else ord("A")


PRIMER = (306, *b"assistant")
"""What may stand between the generation prompt and the answer (harmony's start)."""


def said(context: NDArray[np.int32]) -> int | None:
    """The next token of an answer that a message asks for by "say:"; None if none does."""
    starts = np.flatnonzero(context == START)
    if not starts.size:
        return None
    begin = int(starts[-1])
    head = context[:begin]
    place = np.where(head < 256, head, 0).astype(np.uint8).tobytes().rfind(b"say:")
    if place < 0:
        return None
    wanted = head[place + len("say:") :]
    ends = np.flatnonzero(wanted == END)
    wanted = wanted[: ends[0]] if ends.size else wanted
    answer = context[begin + 1 + len("assistant\n") :].tolist()
    count = len(answer) - len(PRIMER) * (answer[: len(PRIMER)] == [*PRIMER])
    return int(wanted[count]) if count < len(wanted) else END


class Scripted(NullExecutable):
    """Follows `script`, or what a message asks it to say."""

    def wanted(self, context: NDArray[np.int32]) -> int | None:
        """The next token, unless `script` knows it."""
        return said(context)

    def _logits(self, step: Step, row: int, context: int) -> Floats:
        logits = super()._logits(step, row, context)
        sequence = int((step.query_start[1:] <= row).sum())
        tokens = self._read(step.block_table[sequence], int(step.positions[row]) + 1)
        last, wanted = int(tokens[-1]), self.wanted(tokens)
        closers = ESCAPED if last == ord("\\") else CLOSERS
        logits[list(closers)] = PEAK * np.linspace(0.7, 0.2, len(closers))
        if wanted is not None:
            logits[wanted] = PEAK
        elif last == LAST:  # where a grammar forbids the end: close the string, the object
            logits[[END, ord('"')]] = PEAK, 0.8 * PEAK
        else:
            logits[self._script(last, int(step.positions[row]))] = PEAK
            if last == ord('"'):
                logits[ord("}")] = 0.8 * PEAK
        return logits


class FastScript(NullBackend):
    """Steps take no time."""

    executable: type[Scripted] = Scripted

    def __init__(self, step_s: float = 0.0) -> None:
        super().__init__(script, step_s)
        self._seconds = step_s

    def compile(
        self, graph: Graph, checkpoint: Checkpoint, config: ModelConfig, options: BackendOptions
    ) -> Executable:
        return self.executable(config, options, script, self._seconds)


class SlowScript(FastScript):
    """Steps take five milliseconds."""

    def __init__(self) -> None:
        super().__init__(step_s=0.005)


def make_engine(options: EngineOptions, progress: Progress, located: object) -> Engine:
    """The engine process's factory: knows the backends "fast" and "slow"."""
    BACKENDS["fast"] = (__name__, "FastScript")
    BACKENDS["slow"] = (__name__, "SlowScript")
    return load_engine(options, progress, located)  # type: ignore[arg-type]


FACTORY = f"{__name__}:make_engine"
