"""How byte-level BPE cuts text into words before merging: a table by `tokenizer.ggml.pre`.

Each rule is a list of regular expressions (Oniguruma syntax). They are applied in turn; each cuts
the words left by the one before it, and both its matches and what lies between them stay words.
"""

from __future__ import annotations

from msgspec import Struct

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def _cl100k(digits: str, prefix: str = CONTRACTIONS + "|") -> str:
    """The pattern of OpenAI's cl100k vocabulary; digits are taken in runs of `digits`."""
    words, others = r"[^\r\n\p{L}\p{N}]?\p{L}+", r" ?[^\s\p{L}\p{N}]+[\r\n]*"
    return rf"{prefix}{words}|\p{{N}}{digits}|{others}|{SPACES}"


def _o200k(digits: str, contractions: str) -> str:
    """The pattern of OpenAI's o200k vocabulary: words also end where the case falls."""
    upper, lower = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
    return (
        rf"[^\r\n\p{{L}}\p{{N}}]?[{upper}]*[{lower}]+{contractions}"
        rf"|[^\r\n\p{{L}}\p{{N}}]?[{upper}]+[{lower}]*{contractions}"
        rf"|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{SPACES}"
    )


class PreTokenizer(Struct, frozen=True):
    """patterns: see above. nfc: compose characters first. ignore_merges: a word that is a piece is
    taken whole. add_bos: whether a text begins with bos where the file does not say."""

    patterns: tuple[str, ...]
    nfc: bool = False
    ignore_merges: bool = False
    add_bos: bool = False


DIGIT = r"\p{N}"
PUNCTUATED = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
) + SPACES
KANJI_KANA = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
WIDE = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"  # as DeepSeek's tokenizer.json has it
DIGITS_FROM_RIGHT = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"
CASED_LETTERS = (  # letters of scripts with upper and lower case, as DeepSeek LLM lists them
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293"
    "\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c"
    "\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5"
    "\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59"
    "\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc"
    "\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107"
    "\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee"
    "\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e"
    "\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f"
    "\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943"
)

_GPT2 = PreTokenizer((GPT2,))
_GPT_NEOX = PreTokenizer((GPT2,), nfc=True)
_DIGITS_GPT2 = PreTokenizer((DIGIT, GPT2))
_LLAMA3 = PreTokenizer((_cl100k("{1,3}"),), ignore_merges=True, add_bos=True)
_CL100K = PreTokenizer((_cl100k("{1,3}"),))
_QWEN2 = PreTokenizer((_cl100k(""),), nfc=True)
_DEEPSEEK3 = PreTokenizer((r"\p{N}{1,3}", KANJI_KANA, PUNCTUATED))
_GPT4O = PreTokenizer((_o200k("{1,3}", CONTRACTIONS + "?"),))
_BLOOM = PreTokenizer((" ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+",))
_BAILING = PreTokenizer(
    (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
        r"|\s*[\r\n]|\s+(?!\S)|\s+",
    )
)


def _same_rule(rule: PreTokenizer, *names: str) -> dict[str, PreTokenizer]:
    """The rule under each of the blank-separated names."""
    return dict.fromkeys(" ".join(names).split(), rule)


DEFAULT = PreTokenizer(
    (r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
)
"""For files that name no rule (made before the key existed)."""

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "default": DEFAULT,
    **_same_rule(
        _GPT2,
        "gpt-2 phi-2 jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code roberta-bpe",
        "gigachat a.x-4.0 mellum exaone4 jais trillion granite-docling",
    ),
    **_same_rule(_GPT_NEOX, "mpt olmo modern-bert"),
    **_same_rule(_DIGITS_GPT2, "smollm starcoder refact codeshell exaone minerva-7b mellum2"),
    "command-r": PreTokenizer((DIGIT, GPT2), nfc=True),
    **_same_rule(
        _LLAMA3,
        "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
    ),
    **_same_rule(_CL100K, "dbrx smaug-bpe chatglm-bpe"),
    **_same_rule(PreTokenizer((_cl100k("{1,3}"),), ignore_merges=True), "glm4 glm5"),
    **_same_rule(_QWEN2, "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2"),
    **_same_rule(PreTokenizer((_cl100k(""),)), "hunyuan solar-open grok-2"),
    "ufakzeka": PreTokenizer((_cl100k("", prefix=""),)),
    "laguna": PreTokenizer((r"[^\n]+|[\n]+", _cl100k(""))),
    "minicpm5": PreTokenizer((r"\p{N}{1,3}", _cl100k("+")), ignore_merges=True),
    "qwen35": PreTokenizer(
        (
            CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
            r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + SPACES,
        ),
    ),
    "deepseek-llm": PreTokenizer(
        (
            "[\r\n]",
            rf"\s?[{CASED_LETTERS}]+",
            "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
            r"\s+$",
            WIDE,
            r"\p{N}+",
        )
    ),
    "deepseek-coder": PreTokenizer(("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", WIDE, DIGIT)),
    **_same_rule(_DEEPSEEK3, "deepseek-v3 hunyuan-dense joyai-llm hy_v4"),
    "youtu": PreTokenizer(
        (
            "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c"
            "\u3001-\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+|" + KANJI_KANA,
            _o200k("", CONTRACTIONS + "?"),
        ),
        ignore_merges=True,
    ),
    "falcon": PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]")),
    **_same_rule(_BLOOM, "bloom poro-chat gpt3-finnish"),
    "viking": PreTokenizer((*_BLOOM.patterns, DIGIT)),
    "tekken": PreTokenizer((_o200k("", ""),), ignore_merges=True, add_bos=True),
    **_same_rule(_GPT4O, "gpt-4o llama4 kanana2 talkie minimax-m2"),
    **_same_rule(PreTokenizer((DIGITS_FROM_RIGHT, *_GPT4O.patterns)), "tiny_aya cohere2moe"),
    "chameleon": PreTokenizer(
        (
            "<sentinel:[0-9]+>",
            "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
            r"([\t\n]|    |  )",
            DIGIT,
            r"[\p{P}!-/:-@\[-`{-~]",
            GPT2,
        ),
        add_bos=True,
    ),
    **_same_rule(_BAILING, "bailingmoe bailingmoe2 llada-moe"),
    "seed-coder": PreTokenizer(
        (CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|" + SPACES,)
    ),
    "exaone-moe": PreTokenizer(
        (
            CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}"
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",
        )
    ),
    "afmoe": PreTokenizer(
        (
            DIGITS_FROM_RIGHT,
            "[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf"
            "\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af"
            "\u1100-\u11ff]+",
            PUNCTUATED,
        )
    ),
}
