"""python -m benchmarks.embeddings [--rival-python PATH] [--size bert-base]

Embeds random texts of some lengths with Octavo and with transformers on PyTorch, in turn, each in a
process of its own, on a made model of a usual size. A ratio is taken within a round, so that what
else the machine does meets both; shown are medians and quartiles over the rounds. The ratio of the
processor time both took says more where others use the same cores.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.embeddings.model import SIZES, make
from benchmarks.report import table, write_json

DRIVER = Path(__file__).parent / "driver.py"
PAIRS = (
    ("float32", "octavo", "native", "torch", "f32"),
    ("fast", "octavo", "int8", "torch", "bf16"),
)
TOKENS = 2048
"""Of one run: as many texts as have so many tokens."""


class Engine:
    """A driver process that stays, asleep, while the others run."""

    def __init__(self, python: str, name: str, folder: Path, threads: int, kind: str) -> None:
        command = [python, str(DRIVER), name, str(folder), str(threads), kind]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self.name = f"{name} {kind}"
        self.version = str(self._read()["version"])

    def seconds(self, length: int, texts: int) -> tuple[float, float]:
        """One run: of the clock and of the processor."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"length": length, "texts": texts}) + "\n")
        self._process.stdin.flush()
        answer = self._read()
        return float(answer["seconds"]), float(answer["cpu_seconds"])

    def close(self) -> None:
        """Let it leave."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def _read(self) -> dict[str, float | str]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith('{"octavo_driver"'):
                answer: dict[str, float | str] = json.loads(line)["octavo_driver"]
                return answer
        raise SystemExit(f"{self.name} died")


@dataclass
class Row:
    """Rates in texts/s of one pair at one length, round by round; cpu: the rival's processor time
    over ours."""

    pair: str
    length: int
    ours: list[float] = field(default_factory=list)
    rival: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def cells(self) -> list[str]:
        ratios = [a / b for a, b in zip(self.ours, self.rival, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
        rates = [f"{statistics.median(side):.1f}" for side in (self.ours, self.rival)]
        spread = f"{low:.2f}-{high:.2f}"
        work = f"{statistics.median(self.cpu):.2f}"
        return [f"{self.pair}, {self.length}", *rates, f"{middle:.2f}", spread, work]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--rival-python", default=sys.executable, help="has torch, transformers")
    parser.add_argument("--size", choices=SIZES, default="bert-base")
    parser.add_argument("--lengths", type=int, nargs="+", default=[16, 128, 512])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pairs", nargs="+", default=[pair[0] for pair in PAIRS])
    parser.add_argument("--cache", type=Path, default=Path("build") / "embeddings")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    args = parser.parse_args()
    folder = args.cache / args.size
    make(folder, args.size)
    rows, versions = [], {}
    for pair, ours, our_kind, rival, rival_kind in PAIRS:
        if pair not in args.pairs:
            continue
        engines = (
            Engine(sys.executable, ours, folder, args.threads, our_kind),
            Engine(args.rival_python, rival, folder, args.threads, rival_kind),
        )
        versions |= {engine.name: engine.version for engine in engines}
        rows += [_measure(pair, engines, length, args.rounds) for length in args.lengths]
        for engine in engines:
            engine.close()
    head = [
        "weights, tokens a text",
        "octavo texts/s",
        "torch texts/s",
        "ratio",
        "quartiles",
        "by CPU time",
    ]
    print(table(head, [row.cells() for row in rows]))
    print("\n".join(f"{name}: {version}" for name, version in versions.items()))
    if args.json is not None:
        facts = {"size": args.size, "threads": args.threads, "versions": versions}
        write_json(args.json, [vars(row) for row in rows], **facts)


def _measure(pair: str, engines: tuple[Engine, Engine], length: int, rounds: int) -> Row:
    texts = max(1, TOKENS // length)
    row = Row(pair, length)
    for engine in engines:
        engine.seconds(length, texts)  # warm
    for turn in range(rounds):
        order = engines if turn % 2 == 0 else engines[::-1]
        took = {engine.name: engine.seconds(length, texts) for engine in order}
        ours, rival = (took[engine.name] for engine in engines)
        row.ours.append(texts / ours[0])
        row.rival.append(texts / rival[0])
        row.cpu.append(rival[1] / ours[1])
    return row


if __name__ == "__main__":
    main()
