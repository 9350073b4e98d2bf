"""What adapters cost: tokens a second of one batch without any, with one, and with four.

Random adapters of one rank on every projection of attention and MLP. Two engines, one without
adapters and one that has loaded them, run the same requests in turn; ratios are those of
neighbours. "prefill" is the whole prompts, "decode" what follows.

    python -m benchmarks.lora smollm2 --rank 16 --json lora.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import safetensors.numpy
from benchmarks.report import table, write_json

from octavo import LLM, SamplingParams
from octavo.models import config_from
from octavo.models.registry import family_of
from octavo.weights import open_checkpoint, resolve
from octavo.weights.names import stored_name

PARTS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
NUM_ADAPTERS = 4
PROMPT, OUTPUT = 128, 33


@dataclass
class Way:
    """One way of choosing adapters; seconds of each repetition."""

    name: str
    adapters: tuple[str, ...]
    prefill_s: list[float] = field(default_factory=list)
    decode_s: list[float] = field(default_factory=list)


WAYS = (
    ("none loaded", ()),
    ("loaded, none used", ("",)),
    ("one", ("a0",)),
    ("one, for half of the requests", ("a0", "")),
    ("four", tuple(f"a{i}" for i in range(NUM_ADAPTERS))),
)


def write_random_adapter(model: str, folder: Path, rank: int, seed: int) -> Path:
    """An adapter in peft's layout that changes every projection a little."""
    checkpoint = open_checkpoint(resolve(model))
    config = config_from(checkpoint)
    family, rng = family_of(config).json_names[0], np.random.default_rng(seed)
    tensors: dict[str, np.ndarray] = {}
    for name, tensor in checkpoint.tensors.items():
        stored = stored_name(name, family) if name.split(".")[-2] in PARTS else None
        if stored is None or len(tensor.shape) != 2:
            continue
        module, (n, k) = stored.removesuffix(".weight"), tensor.shape
        for part, shape in (("A", (rank, k)), ("B", (n, rank))):
            values = rng.standard_normal(shape, np.float32) * np.float32(0.01)
            tensors[f"base_model.model.{module}.lora_{part}.weight"] = values
    folder.mkdir()
    safetensors.numpy.save_file(tensors, folder / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    return folder


def run(llm: LLM, way: Way, streams: int, seed: int) -> None:
    """One repetition: the prompts with one token, then again with all of them; the prefix cache is
    off, so that the difference is decoding."""
    rng = np.random.default_rng(seed)
    prompts = rng.integers(100, 1000, (streams, PROMPT)).tolist()
    names = way.adapters or ("",)
    chosen = [names[i % len(names)] for i in range(streams)]
    seconds = []
    for tokens in (1, OUTPUT):
        params = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)
        start = time.perf_counter()
        llm.generate(prompts, params, lora=chosen, use_tqdm=False)
        seconds.append(time.perf_counter() - start)
    way.prefill_s.append(seconds[0])
    way.decode_s.append(seconds[1] - seconds[0])


def measure(model: str, rank: int, streams: int, repeats: int) -> list[Way]:
    """All ways in turn, `repeats` times after one to warm up."""
    ways = [Way(name, adapters) for name, adapters in WAYS]
    with tempfile.TemporaryDirectory(prefix="octavo-lora-") as home:
        lora = {
            f"a{i}": str(write_random_adapter(model, Path(home) / f"a{i}", rank, i))
            for i in range(NUM_ADAPTERS)
        }
        settings = {"max_num_seqs": streams, "enable_prefix_caching": False, "max_model_len": 512}
        with LLM(model, **settings) as bare, LLM(model, lora=lora, **settings) as loaded:
            for repeat in range(repeats + 1):
                for way in ways:
                    run(loaded if way.adapters else bare, way, streams, repeat)
    for way in ways:
        del way.prefill_s[0], way.decode_s[0]
    return ways


def report(ways: Sequence[Way], streams: int) -> str:
    """Medians, and shares of what there is without adapters."""
    rows = []
    bare = ways[0]
    for way in ways:
        cells = [way.name]
        for tokens, own, first in (
            (PROMPT, way.prefill_s, bare.prefill_s),
            (OUTPUT - 1, way.decode_s, bare.decode_s),
        ):
            share = statistics.median(a / b for a, b in zip(first, own, strict=True))
            cells += [f"{streams * tokens / statistics.median(own):,.0f}", f"{share:.2f}"]
        rows.append(cells)
    return table(["adapters", "prefill tokens/s", "of none", "decode tokens/s", "of none"], rows)


def main(argv: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(argv)
    ways = measure(args.model, args.rank, args.streams, args.repeats)
    print(report(ways, args.streams))
    if args.json:
        facts = {"model": args.model, "rank": args.rank, "streams": args.streams}
        write_json(args.json, [asdict(way) for way in ways], **facts)


if __name__ == "__main__":
    main()
