"""One model from one format to the other: a Hugging Face folder to a GGUF file, and back.

What is written is read back by the usual readers before any of it lands: the configuration must be
the same, the tokenizer must give sample texts the same ids (`proof.py`, `probes.py`).
"""

from octavo.convert.run import DTYPES, Progress, convert
from octavo.convert.view import gguf_view

__all__ = ["DTYPES", "Progress", "convert", "gguf_view"]
