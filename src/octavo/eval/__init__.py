"""Quality: how well a model predicts a text, and how far one run of it strays from another.

`perplexity` and `divergence` walk windows of a text through sources of logits, piece by piece, so
that memory does not grow with the text. `octavo eval` and the benchmarks stand on this.
"""

from octavo.eval.metrics import kl_divergence, log_softmax
from octavo.eval.results import Divergence, Estimate, Perplexity
from octavo.eval.run import Progress, divergence, perplexity
from octavo.eval.source import EngineSource, LogitsSource, open_source
from octavo.eval.text import default_text
from octavo.eval.windows import Window, windows_of

__all__ = [
    "Divergence",
    "EngineSource",
    "Estimate",
    "LogitsSource",
    "Perplexity",
    "Progress",
    "Window",
    "default_text",
    "divergence",
    "kl_divergence",
    "log_softmax",
    "open_source",
    "perplexity",
    "windows_of",
]
