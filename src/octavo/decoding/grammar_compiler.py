"""From grammars to matchers over a tokenizer's vocabulary, through llguidance."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from octavo.decoding.grammar import Grammar, with_whitespace
from octavo.decoding.grammar_errors import explain
from octavo.decoding.grammar_lark import all_schemas, as_lark, with_bounds
from octavo.decoding.grammar_limits import GrammarLimits, parse_json
from octavo.decoding.grammar_schema import unsafe_number
from octavo.decoding.matcher import Matcher
from octavo.errors import InvalidParameterError

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

    from octavo.tokenizer.base import Tokenizer

CACHED = 32  # grammars kept compiled, of up to 50 MB each; most take 5 and some milliseconds
_TREE_BYTES_PER_TOKEN = 515  # measured: 492 to 537 with vocabularies of 49,152 to 262,144 tokens
_TREE_BYTES = 6_000_000  # llguidance itself


def tree_bytes(vocab_size: int) -> int:
    """What a GrammarCompiler takes beside the grammars: the tree of all tokens."""
    return _TREE_BYTES + vocab_size * _TREE_BYTES_PER_TOKEN


class CompiledGrammar:
    """A grammar at its beginning. `new_matcher` costs microseconds."""

    def __init__(self, prototype: LLMatcher, vocab_size: int) -> None:
        self._prototype, self._vocab_size = prototype, vocab_size

    def new_matcher(self) -> Matcher:
        """A matcher of its own for one answer."""
        return Matcher(self._prototype.deep_copy(), self._vocab_size)


class GrammarCompiler:
    """Compiles grammars for one vocabulary of V ids; safe to share between threads.

    tokenizer None: ids 0 to 255 are bytes. eos_ids: ids that end an answer. The tree of all tokens
    is built with the first grammar, or by `prepare`: 0.3 to 1.2 s and `tree_bytes`.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | None,
        vocab_size: int,
        eos_ids: Sequence[int] = (),
        limits: GrammarLimits | None = None,
    ) -> None:
        self._tokenizer, self._vocab_size = tokenizer, vocab_size
        self._eos_ids = [token for token in dict.fromkeys(eos_ids) if token < vocab_size]
        self.limits = limits or GrammarLimits()
        self._tree: LLTokenizer | None = None
        self._cache: OrderedDict[Grammar, CompiledGrammar] = OrderedDict()
        self._lock = threading.Lock()

    @staticmethod
    @lru_cache(maxsize=1)
    def for_bytes() -> GrammarCompiler:
        """A compiler for texts as bytes, without a model."""
        return GrammarCompiler(None, 256)

    def prepare(self) -> None:
        """Build what all grammars share."""
        with self._lock:
            self._shared()

    def find(self, grammar: Grammar) -> CompiledGrammar | None:
        """The grammar if it is compiled already."""
        return self._cache.get(grammar)

    def compile(self, grammar: Grammar) -> CompiledGrammar:
        """Raises InvalidParameterError, naming `grammar.param` and the keyword or place at fault,
        for a grammar that is malformed, too large, unsupported, or matches no text at all."""
        with self._lock:
            found = self._cache.get(grammar)
            if found is None:
                self.limits.check(grammar)
                found = CompiledGrammar(self._build(grammar), self._vocab_size)
                self._cache[grammar] = found
                if len(self._cache) > CACHED:
                    self._cache.popitem(last=False)
            else:
                self._cache.move_to_end(grammar)
        return found

    def _build(self, grammar: Grammar) -> LLMatcher:
        from llguidance import LLMatcher, LLParserLimits

        limits = LLParserLimits(
            initial_lexer_fuel=self.limits.lexer_fuel,
            max_grammar_size=self.limits.grammar_size,
            max_lexer_states=self.limits.lexer_states,
            verbose_errors=False,
        )
        try:
            source = _translate(grammar)
        except (ValueError, OverflowError) as error:
            raise InvalidParameterError(grammar.param, str(error)[:200]) from None
        matcher = LLMatcher(self._shared(), source, log_level=0, limits=limits)
        if matcher.is_error():
            raise explain(grammar, matcher.get_error())
        if not matcher.is_accepting():
            trial = matcher.deep_copy()
            if not any(trial.compute_bitmask()) or trial.is_error():
                raise InvalidParameterError(grammar.param, "no text can match it")
        return matcher

    def _shared(self) -> LLTokenizer:
        if self._tree is None:
            self._tree = self._build_tree()
        return self._tree

    def _build_tree(self) -> LLTokenizer:
        from llguidance import LLTokenizer, TokenizerWrapper

        if self._tokenizer is None:
            return LLTokenizer("byte")
        view = _VocabularyView(self._tokenizer, self._vocab_size, self._eos_ids)
        return LLTokenizer(TokenizerWrapper(view), eos_token=self._eos_ids or None)


class _VocabularyView:
    """A tokenizer as llguidance wants to see it. Rows of the model beyond the tokenizer's
    vocabulary are empty and never allowed. Knows nothing of the tree that is built from it:
    a cycle through llguidance would never be collected."""

    bos_token_id: int | None = None

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, eos_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self.tokens = [tokenizer.token_bytes(token) for token in range(vocab_size)]
        special = {*tokenizer.special.hidden_ids, *eos_ids}
        self.special_token_ids = sorted(token for token in special if token < vocab_size)
        self.eos_token_id = eos_ids[0] if eos_ids else None

    def __call__(self, text: bytes | str) -> list[int]:
        """How the model would write a forced text. Where that adds or loses bytes (the space that
        SentencePiece puts before a text), the longest tokens from the left."""
        data = text.encode() if isinstance(text, str) else text
        ids = self._tokenizer.encode(
            data.decode("utf-8", "replace"), add_special_tokens=False, parse_special=False
        )
        return ids if b"".join(self.tokens[i] for i in ids) == data else self._greedy(data)

    def _greedy(self, data: bytes) -> list[int]:
        ids, at = [], 0
        while at < len(data):
            token, length = self._longest(data[at : at + self._max_length])
            if length == 0:
                break  # a byte without a token; what is forced so far will do
            ids.append(token)
            at += length
        return ids

    def _longest(self, data: bytes) -> tuple[int, int]:
        for length in range(len(data), 0, -1):
            if (token := self._id_of.get(data[:length])) is not None:
                return token, length
        return -1, 0

    @cached_property
    def _id_of(self) -> dict[bytes, int]:
        special = frozenset(self.special_token_ids)
        return {raw: token for token, raw in enumerate(self.tokens) if token not in special}

    @cached_property
    def _max_length(self) -> int:
        return max(map(len, self._id_of), default=1)


def _translate(grammar: Grammar) -> str:
    """The grammar as llguidance writes it. Raises InvalidParameterError if it cannot be."""
    from llguidance import LLMatcher

    match grammar.kind:
        case "json_object":
            return LLMatcher.grammar_from_json_schema(
                with_whitespace({"type": "object"}, grammar.whitespace)
            )
        case "json_schema":
            schema = json.dumps(_schema(grammar), ensure_ascii=False)
            return LLMatcher.grammar_from_json_schema(schema)
        case "lark":
            for embedded in all_schemas(grammar.source):
                if message := unsafe_number(embedded):
                    raise InvalidParameterError(grammar.param, message)
            return LLMatcher.grammar_from_lark(with_bounds(grammar.source))
        case "regex" | "choice" | "ebnf":
            return LLMatcher.grammar_from_lark(as_lark(grammar))


def _schema(grammar: Grammar) -> dict[str, Any]:
    schema = parse_json(grammar)
    if not isinstance(schema, dict | bool):
        raise InvalidParameterError(grammar.param, "a JSON schema must be an object or a boolean")
    if schema is False:
        raise InvalidParameterError(grammar.param, "no text can match the schema `false`")
    if isinstance(schema, dict) and "x-guidance" in schema:
        raise InvalidParameterError(grammar.param, 'unsupported keyword "x-guidance" at #')
    if message := unsafe_number(schema):
        raise InvalidParameterError(grammar.param, message)
    return with_whitespace(schema, grammar.whitespace)
