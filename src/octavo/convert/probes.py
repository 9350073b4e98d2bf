"""Whether two tokenizers are one: texts that make the usual ways of cutting differ."""

from __future__ import annotations

from octavo.errors import UnsupportedError
from octavo.tokenizer.base import Tokenizer

PROBES = (
    "Hello, world! It's 2024; they've said I'll go.",
    " leading, double  and trailing spaces  \n\n\n next\tline\r\n  \n   end ",
    "x=1234567890+0.5e-10, 3,141,592 (100%) #42 @a_b/c-d.e?f&g=h",
    "def f(x: int) -> str:\n    return f'{x:>8}'  # ünïcödé\n\n\nclass A:\n\tpass\n",
    "CamelCaseWords ABCdef XMLHttpRequest iPhone's DON'T don’t",
    "Größe, naïve, e\u0301t\u00e9, Ελληνικά, Привет мир, עברית, العربية, हिन्दी",
    "中文分词测试，今天天气不错。日本語のテキスト、カタカナ。한국어 띄어쓰기",
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 \u2603 \u00a0nbsp\u3000wide \ufeff",
    "!!! ... --- *** ??? \\\\ //// {}[]()<>«»“”‘’",
    "a" * 40 + " " * 33 + "\n" * 5 + "0" * 17,
    "",
)


def same_ids(before: Tokenizer, after: Tokenizer | None, what: str) -> None:
    """Raise UnsupportedError where `after`, read back from what is about to be written, gives a
    probe other ids."""
    for text in PROBES:
        wanted = _ids(before, text)
        got = _ids(after, text) if after is not None else []
        if got != wanted:
            at = next((i for i, (a, b) in enumerate(zip(got, wanted, strict=False)) if a != b), 0)
            raise UnsupportedError(
                f"convert: the tokenizer cannot be said as {what}: {text[:40]!r} would become"
                f" {got[at : at + 6]} where it is {wanted[at : at + 6]} (from token {at} on)"
            )


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """Of the text; of an encoder's tokenizer, which ends texts, of a pair with it besides."""
    ids = tokenizer.encode(text)
    if tokenizer.special.suffix_ids:
        ids += tokenizer.encode_pair("a", text)[0]
    return ids
