"""Grammars and what they accept, judged byte by byte; limits; errors that name the keyword."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from octavo.decoding import Grammar
from octavo.decoding.grammar import json_rule
from octavo.decoding.grammar_compiler import GrammarCompiler
from octavo.decoding.grammar_limits import GrammarLimits
from octavo.errors import InvalidParameterError
from tests.support.engines import EOS, VOCAB, byte_tokenizer

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("grammar", "accepted", "rejected"),
    [
        (Grammar.json_object(), ["{}", '{"a": [1, {"b": null}]}'], ["[]", "1", "{", "{} "]),
        (
            Grammar.from_schema(PERSON),
            ['{"name": "é", "age": 3}', '{"name":""}'],
            ["{}", '{"age":1}'],
        ),
        (Grammar.from_schema(True), ["1", "[]", '"x"'], ["", "x"]),
        (Grammar.from_schema(json.dumps({"enum": [1, "a"]})), ["1", '"a"'], ["a", "2"]),
        (Grammar.from_regex(r"\d{3}-[a-z]+"), ["123-x"], ["12-x", "123-", "a123-x"]),
        (Grammar.from_regex(r"\d\w"), ["1a"], ["१a", "1é"]),
        (Grammar.from_regex("a/b\n\\/[/]\\n"), ["a/b\n//\n"], ["a/b"]),
        (Grammar.from_regex("^ab$"), ["ab"], ["^ab$", "abc"]),
        (Grammar.from_regex("a/b|"), ["a/b", ""], ["a"]),
        (
            Grammar.from_choices(["yes", 'n"o', "é\n", ""]),
            ["yes", 'n"o', "é\n", ""],
            ["y", "yesno"],
        ),
        (Grammar.from_lark('start: "a" b+\nb: /[0-9]/'), ["a1", "a12"], ["a", "1"]),
        (Grammar.from_lark("start: " + json_rule({"type": "null"})), ["null"], ["1"]),
        (
            Grammar.from_ebnf(r'root ::= "\u0041\x22\u000a" [\u00e9-\U0001F600\x5d] "\\x"'),
            ['A"\né\\x', 'A"\n]\\x', 'A"\n😀\\x'],
            ['A"\na\\x', "A"],
        ),
        (Grammar.from_ebnf('root ::= "a" x-y*\nx-y ::= [0-9] | "-"'), ["a", "a1-"], ["1", "ab"]),
    ],
)
def test_accepts(grammar, accepted, rejected):
    assert [text for text in accepted if not grammar.accepts(text)] == []
    assert [text for text in rejected if grammar.accepts(text)] == []


@pytest.mark.parametrize(
    "text", [json.dumps({"a": [1, {"b": 2}]}, indent=indent) for indent in (None, 0, 2, 8)]
)
def test_usual_layouts_of_json_are_accepted(text):
    assert Grammar.json_object().accepts(text)


@pytest.mark.parametrize("blank", ["  ", "\n\n", "\t", "\n" + " " * 65, " \n"])
def test_blanks_between_tokens_are_bounded(blank):
    assert not Grammar.json_object().accepts('{"a":' + blank + "1}")


def test_blanks_can_be_chosen():
    compact = Grammar("json_object", whitespace="")
    assert compact.accepts('{"a":1}')
    assert not compact.accepts('{"a": 1}')
    assert Grammar("json_object", whitespace=" {0,3}").accepts('{"a":   1}')


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"properties": {"a": {"contains": {}}}}, 'keyword "contains" at #/properties/a/contains'),
        ({"items": {"not": {}}}, 'keyword "not" at #/items/not'),
        ({"properties": {"a/b": {"not": {}}}}, 'keyword "not" at #/properties/a~1b/not'),
        ({"type": "text"}, 'type "text" at #/type'),
        ({"$ref": "#/$defs/none"}, "unresolvable reference"),
        ({"$ref": "https://example.com/x"}, "external reference"),
        ({"oneOf": [{}, {}]}, 'keyword "oneOf" at #/oneOf'),
        ({"pattern": "(?=a)b"}, "pattern at #/pattern: look-around"),
        ({"x-guidance": {"lenient": True}}, 'keyword "x-guidance"'),
        ({"type": "object", "properties": {"a": False}, "required": ["a"]}, "unsatisfiable"),
        (False, "no text can match"),
        ({"$ref": "#"}, "no text can match"),
        ([], "an object or a boolean"),
        (3, "an object or a boolean"),
        ({"enum": [{"a": [2**53 + 1]}]}, r"constant beyond 2\^53"),
        ({"const": -(10**40)}, r"constant beyond 2\^53"),
        ({"const": {"const": 2**60}}, r"constant beyond 2\^53"),
        ({"properties": {"const": {"enum": [2**60]}}}, r"constant beyond 2\^53"),
        ({"type": "integer", "maximum": -(2**60)}, r"`maximum` below -2\^53"),
        ({"items": {"anyOf": [{"exclusiveMaximum": -1e300}]}}, r"`exclusiveMaximum` below"),
        ({"maximum": 10**400}, "number"),
        ("{", "not valid JSON"),
    ],
)
def test_what_a_schema_asks_in_vain_is_named(schema, message):
    grammar = Grammar.from_schema(schema, param="response_format")
    with pytest.raises(InvalidParameterError, match=message) as caught:
        grammar.accepts("1")
    assert caught.value.param == "response_format"
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar.from_regex("("),
        Grammar.from_regex(r"(a)\1"),
        Grammar.from_regex("a{3,2}"),
        Grammar.from_lark(""),
        Grammar.from_lark("start: nothing"),
        Grammar.from_lark("start: <no_such_token>"),
        Grammar.from_lark('start: "a"\nstart: "b"'),
        Grammar.from_ebnf(""),
        Grammar.from_ebnf("root := x"),
        Grammar.from_ebnf('root ::= "'),
        Grammar.from_ebnf("root ::= [a-"),
        Grammar.from_ebnf('root ::= "\\'),
        Grammar("choice", "{}"),
        Grammar("choice", "[]"),
        Grammar("choice", "[1]"),
        Grammar("choice", "["),
    ],
)
def test_a_malformed_grammar_is_refused(grammar):
    with pytest.raises(InvalidParameterError):
        grammar.accepts("a")


def _nested(depth: int) -> dict[str, object]:
    schema: dict[str, object] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


_AB = {"anyOf": [{"properties": {f"p{i}": {"type": "string"}}} for i in range(12)]}
HOSTILE = [
    Grammar.from_schema('{"items":' * 5000 + "{}" + "}" * 5000),
    Grammar.from_schema(_nested(63)),
    Grammar.from_schema("[" * 100_000),
    Grammar.from_schema({"enum": ["v" * 20 + str(i) for i in range(20_000)]}),
    Grammar.from_schema({"enum": [f"v{i}" for i in range(10_000)]}),
    Grammar.from_schema({"properties": {f"k{i}": {"type": "string"} for i in range(3000)}}),
    Grammar.from_schema({"required": [f"k{i}" for i in range(9000)]}),
    Grammar.from_schema({"allOf": [_AB] * 12}),
    Grammar.from_schema(
        {"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}] * 9}}}
    ),
    Grammar.from_schema({"items": {"$ref": "#"}, "minItems": 3}),
    Grammar.from_schema({"type": "string", "minLength": 10**9, "maxLength": 10**12}),
    Grammar.from_schema({"type": "array", "minItems": 10**9}),
    Grammar.from_schema({"type": "array", "items": {}, "maxItems": 10**6}),
    Grammar.from_schema({"type": "string", "pattern": "^(([a-z])+.)+[A-Z]([a-z])+$"}),
    Grammar.from_schema({"type": "integer", "multipleOf": 99991, "minimum": 1}),
    Grammar.from_regex("(a*)*b"),
    Grammar.from_regex("(x+x+)+y"),
    Grammar.from_regex("((a{1,500}){1,500}){1,500}"),
    Grammar.from_regex(r"(\w{1,900}\s){1,900}"),
    Grammar.from_regex("(.*a.{300})"),
    Grammar.from_regex("(" * 3000 + "a" + ")" * 3000),
    Grammar.from_regex("|".join(f"(.*{i}.*)" for i in range(2000))),
    Grammar.from_regex("[a-z&&[^aeiou]]{1,100000}"),
    Grammar.from_lark("start: " + "(" * 3000 + '"a"' + ")" * 3000),
    Grammar.from_lark("start: start start | "),
    Grammar.from_lark("start: a\n" + "\n".join(f"a{i}: a{i + 1} a{i + 1}" for i in range(40))),
    Grammar.from_lark('start: x{1000000}\nx: "a" x?'),
    Grammar.from_ebnf("root ::= " + "(" * 3000),
    Grammar.from_ebnf("\n".join(f"r{i} ::= r{i + 1}" for i in range(6000))),
    Grammar.from_choices(["x" * 200_000]),
    Grammar.from_choices([f"c{i}" for i in range(10_000)]),
]


@pytest.mark.timeout(30)
@pytest.mark.parametrize("grammar", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_grammar_costs_little(grammar):
    """Compiled or refused, and a few masks computed, within the test's time."""
    compiler = GrammarCompiler(byte_tokenizer(), VOCAB, (EOS,))
    compiler.prepare()
    masks = np.zeros((1, (VOCAB + 31) // 32), dtype=np.uint32)
    try:
        matcher = compiler.compile(grammar).new_matcher()
    except InvalidParameterError:
        matcher = None
    for token in b'"aaaaaaaaaaaa' if matcher is not None else b"":
        matcher.fill(masks, 0)
        if not matcher.try_advance(token):
            break


@pytest.mark.parametrize("schema", [_nested(5000), {"enum": {1}}, {"const": float("nan")}])
def test_a_schema_that_is_no_json_is_refused(schema):
    with pytest.raises(InvalidParameterError, match="cannot be written as JSON"):
        Grammar.from_schema(schema)


def test_limits_are_options():
    with pytest.raises(InvalidParameterError, match="at most 10 are"):
        GrammarLimits(max_bytes=10).check(Grammar.from_schema(PERSON))
    with pytest.raises(InvalidParameterError, match="nested 4 deep, at most 2"):
        GrammarLimits(max_depth=2).check(Grammar.from_schema(_nested(3)))
    with pytest.raises(InvalidParameterError, match="nested 3 deep, at most 2"):
        GrammarLimits(max_depth=2).check(Grammar.from_regex("(((a)))"))
    GrammarLimits().check(Grammar.from_schema(PERSON))


def test_masks_allow_the_end_only_where_the_answer_is_whole():
    compiler = GrammarCompiler(byte_tokenizer(), VOCAB, (EOS,))
    matcher = compiler.compile(Grammar.from_regex("ab?")).new_matcher()
    allowed = []
    for token in b"ab":
        allowed.append(_allowed(matcher))
        matcher.advance([token])
    assert allowed == [{ord("a")}, {ord("b"), EOS}]
    assert matcher.is_complete


def test_a_token_that_does_not_fit_is_an_error_that_stays():
    compiler = GrammarCompiler(byte_tokenizer(), VOCAB, (EOS,))
    matcher = compiler.compile(Grammar.from_choices(["ab"])).new_matcher()
    matcher.advance(b"x")
    assert matcher.error is not None
    assert _allowed(matcher) == set()
    assert not matcher.can_end
    assert not matcher.is_complete


def test_matchers_of_one_grammar_are_independent_and_the_grammar_is_compiled_once():
    compiler = GrammarCompiler(byte_tokenizer(), VOCAB, (EOS,))
    compiled = compiler.compile(Grammar.from_choices(["ab", "cd"]))
    first, second = compiled.new_matcher(), compiled.new_matcher()
    first.advance(b"a")
    assert (_allowed(first), _allowed(second)) == ({ord("b")}, {ord("a"), ord("c")})
    assert compiler.compile(Grammar.from_choices(["ab", "cd"], param="other")) is compiled


def _allowed(matcher) -> set[int]:
    masks = np.zeros((1, (VOCAB + 31) // 32), dtype=np.uint32)
    matcher.fill(masks, 0)
    bits = np.unpackbits(masks.view(np.uint8), bitorder="little")
    return set(np.flatnonzero(bits).tolist())


OUT_OF_RANGE = [
    {"const": -(2**63)},
    {"enum": ["x", [-(2**63) + 1]]},
    {"type": "integer", "enum": [{}, -1e308]},
    {"type": "integer", "minimum": -(2**63), "maximum": -(2**63) + 1},
    {"$defs": {"d": {"type": "integer", "minimum": -1e19, "maximum": -1e19}}, "$ref": "#/$defs/d"},
]


@pytest.mark.parametrize("schema", OUT_OF_RANGE, ids=repr)
@pytest.mark.parametrize(
    "source",
    ["start: %json {}", "start: %json\n{}", 'start: /"/ %json {}', 'start: "a" "%json {}"'],
)
def test_numbers_that_would_end_the_process_are_refused_wherever_they_stand(schema, source):
    grammar = Grammar.from_lark(source.replace("{}", json.dumps(schema)))
    with pytest.raises(InvalidParameterError, match=r"2\^53"):
        GrammarCompiler.for_bytes().compile(grammar)


def test_bounds_of_64_bits_and_properties_named_like_keywords_are_accepted():
    wide = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}
    for type_ in ("integer", ["integer", "null"]):
        for number in (-(2**63) + 1024, 0, 2**63 - 1):
            assert Grammar.from_schema({**wide, "type": type_}).accepts(str(number))
    assert Grammar.from_schema({"type": "integer", "exclusiveMinimum": -1e300}).accepts("-5")
    named = {"properties": {"const": {**wide, "default": 2**63}, "maximum": {"const": 3}}}
    assert Grammar.from_schema(named).accepts('{"const": 12345678901234567, "maximum": 3}')


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "multipleOf": 2**31},
        {"items": {"type": "number", "multipleOf": 86399.5}},
        {"allOf": [{"type": "integer", "multipleOf": 997}, {"multipleOf": 991}]},
        {"$defs": {"d": {"multipleOf": 9973}}, "$ref": "#/$defs/d", "multipleOf": 0.0101},
    ],
    ids=repr,
)
def test_multiples_that_would_take_hours_are_refused(schema):
    with pytest.raises(InvalidParameterError, match=r"multipleOf.* remainders, at most 100000"):
        GrammarCompiler.for_bytes().compile(Grammar.from_schema(schema))


@pytest.mark.parametrize("multiple", [1, 5, 0.01, 0.25, 1024, 86400, 1e6, 36e5])
def test_usual_multiples_are_accepted(multiple):
    grammar = Grammar.from_schema({"type": "number", "multipleOf": multiple})
    assert grammar.accepts("0")
    assert not grammar.accepts("0.0001")


def test_a_grammar_takes_little_memory():
    code = (
        "import resource; from octavo.decoding import Grammar\n"
        "from octavo.decoding.grammar_compiler import GrammarCompiler\n"
        "compiler = GrammarCompiler.for_bytes(); compiler.prepare()\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = peak(); compiler.compile(Grammar.from_regex('a{1000}{1000}'))\n"
        "print(peak() - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 60_000  # kB


def test_schemas_in_a_lark_grammar_are_held_to_the_same():
    grammar = Grammar.from_lark('start: "<" %json {"type": "object"} ">"\n# %json {\n')
    assert grammar.accepts('<{"a": 1}>')
    assert not grammar.accepts('<{"a":  1}>')
    spaced = '{"type": "object", "x-guidance": {"whitespace_pattern": "[ ]{0,9}"}}'
    assert Grammar.from_lark(f"start: %json {spaced}").accepts('{"a":   1}')
    assert Grammar.from_lark('start: "%json {" /[0-9]/').accepts("%json {3")
    bad = Grammar.from_lark('start: "x" %json {"items": {"contains": 1}}', param="tools")
    with pytest.raises(InvalidParameterError, match=r'tools: .* "contains" at #/items/contains'):
        bad.accepts("x")


_FORMAT_PROPERTY = {
    "type": "object",
    "properties": {"format": {"type": "null"}},
    "unevaluatedProperties": False,
}


@pytest.mark.parametrize(
    ("schema", "accepted", "rejected"),
    [
        ({"type": "string", "format": "int-or-so"}, ['"x"'], ["1"]),
        ({"const": {"format": "x"}}, ['{"format": "x"}'], ["{}"]),
        ({"type": "array", "maxItems": 1.0, "uniqueItems": False}, ["[1]"], ["[1, 2]"]),
        ({"then": False, "type": "null"}, ["null"], ["1"]),
        ({"minContains": 3, "type": "null"}, ["null"], ["1"]),
        ({"type": "object", "propertyNames": {}}, ['{"a": 1}'], ["1"]),
        (_FORMAT_PROPERTY, ['{"format": null}', "{}"], ['{"b": 1}', '{"format": 1}']),
        ({"type": "array", "prefixItems": [True], "unevaluatedItems": False}, ["[1]"], ["[1, 2]"]),
        (
            {"type": "array", "items": {"unevaluatedItems": True, "type": "array"}},
            ["[[1]]"],
            ["[1]"],
        ),
    ],
)
def test_keywords_that_ask_for_nothing_new_are_rewritten(schema, accepted, rejected):
    grammar = Grammar.from_schema(schema)
    assert [text for text in accepted if not grammar.accepts(text)] == []
    assert [text for text in rejected if grammar.accepts(text)] == []


def test_what_other_keywords_evaluate_is_not_folded():
    with pytest.raises(InvalidParameterError, match="unevaluatedProperties"):
        Grammar.from_schema({"anyOf": [{}], "unevaluatedProperties": False}).accepts("1")
