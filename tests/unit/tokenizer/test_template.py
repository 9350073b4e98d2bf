"""Chat templates: rendered as transformers does, and harmless whatever they hold."""

import time

import pytest

from octavo.errors import TemplateError
from octavo.tokenizer import bounds
from octavo.tokenizer.template import ChatTemplates

MESSAGES = [{"role": "user", "content": 'Hi <b>"ü"</b>'}]


def render(source, **variables):
    variables = {"messages": MESSAGES, "add_generation_prompt": True, **variables}
    return ChatTemplates({"default": source}, {"bos_token": "<s>"}).render(None, **variables)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ bos_token }}{{ messages[0]['content'] }}", '<s>Hi <b>"ü"</b>'),
        ("{{ messages[0] | tojson }}", '{"role": "user", "content": "Hi <b>\\"ü\\"</b>"}'),
        ("{{ {'b': 1, 'a': 2} | tojson(indent=2, sort_keys=True) }}", '{\n  "a": 2,\n  "b": 1\n}'),
        ("  {% if true %}\nx\n  {% endif %}\ny", "x\ny"),
        ("{% for i in [1, 2, 3] %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "1"),
        ("{% for i in [1, 2] %}{{ loop.index ~ '/' ~ loop.length }} {% endfor %}", "1/2 2/2 "),
        ("{% for i in 'ab' %}{{ loop.last }}{% endfor %}", "FalseTrue"),
        ("{% for i in nothing %}x{% else %}none{% endfor %}", "none"),
        ("{% for k, v in messages[0].items() %}{{ k }},{% endfor %}", "role,content,"),
        ("{% generation %}a{{ 1 + 1 }}{% endgeneration %}", "a2"),
        ("{% set ns = namespace(n=0) %}{% set ns.n = ns.n + 2 %}{{ ns.n * 'ab' }}", "abab"),
        ("{% macro m(x) %}[{{ x }}]{% endmacro %}{{ m(1) }}{{ m('b') }}", "[1][b]"),
        ("{{ tools is none }} {{ documents is none }} {{ custom }}", "True True value"),
        (
            "{{ '%s-%05d' % ('a', 7) }} {{ '{:>4}'.format(1) }} {{ 'a,b'.split(',')[1] }}",
            "a-00007    1 b",
        ),
        ("{{ ['b', 'a'] | sort | join('+') }} {{ 'abc' | replace('b', 'xx') }}", "a+b axxc"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "1"),
        ("{{ [1, 2, 3] | batch(2) | list }} {{ 'a b' | wordwrap(1) }}", "[[1, 2], [3]] a\nb"),
        ("{{ 'user' == messages[0].role and 'a' in ['a'] and 1 < 2 }}", "True"),
        ("{{ strftime_now('%Y') | length }}", "4"),
    ],
)
def test_renders_as_transformers_does(source, expected):
    """Blocks are trimmed, JSON is not escaped for HTML, loops can be left, and so on."""
    assert render(source, custom="value") == expected


def test_a_named_template_is_used_for_tools():
    """As transformers chooses; a template can also be chosen by name or given as source."""
    templates = ChatTemplates({"default": "plain", "tool_use": "tools"}, {})
    assert templates.render(None, tools=[{"type": "function"}]) == "tools"
    assert templates.render(None, tools=[]) == "plain"
    assert templates.render("tool_use") == "tools"
    assert templates.render("{{ 1 }}") == "1"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("a\n{% if %}", "line 2"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ messages[0].missing.deeper }}", "UndefinedError"),
        ("{% include 'other' %}", "chat template"),
        ("{{ messages.append(1) }}", "SecurityError"),
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        ("{{ (1).__class__.__base__.__subclasses__() }}", "SecurityError"),
        ("{{ messages.__init__.__globals__ }}", "SecurityError"),
        ("{{ '{0.__class__.__mro__}'.format('') }}", "SecurityError"),
        ("{% set f = '{0.__class__.__mro__}'.format %}{{ f(1) }}", "SecurityError"),
        ("{{ raise_exception.__globals__.os }}", "SecurityError"),
        ("{{ cycler.__init__.__globals__.os }}", "SecurityError"),
    ],
)
def test_refusals_and_failures_are_template_errors(source, message):
    """Also attempts to get at Python's insides."""
    with pytest.raises(TemplateError, match=message):
        render(source)


DOUBLING = (
    "{%% set ns = namespace(x='x') %%}{%% for i in range(60) %%}{%% set ns.x = %s %%}{%% endfor %%}"
)
BOMB = "{% set ns = namespace(a=[0, 0], b=[0, 0]) %}{% for i in range(60) %}"
BOMB += "{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}"


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'x' * 10**10 }}",
        "{{ 10**10 * 'x' }}",
        "{{ [0] * 10**10 }}",
        "{{ 2 ** (2 ** 40) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%*d' % (1000000000, 1) }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ '{:{}}'.format(1, 1000000000) }}",
        "{{ 'x'.center(10**9) }}",
        "{{ 'x' | center(10**9) }}",
        "{{ 'x\\n' | indent(10**9) }}",
        "{{ '%1000000000d' | format(1) }}",
        "{{ [1] | tojson(indent=10**9) }}",
        "{{ range(10**9) }}",
        "{{ strftime_now('%Y' * 1000000) }}",
        "{{ strftime_now('%1000000000Y') }}",
        "{{ strftime_now(5) }}",
        "{{ raise_exception('x' * 10**9) }}",
        "{{ (5).to_bytes(10**9, 'big') }}",
        "{{ [0] | slice(10**9) | list }}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% set l = range(99999) | list %}{% for i in l %}{% for j in l %}{% endfor %}{% endfor %}",
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}"
        "{{ f(99) }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        DOUBLING % "ns.x ~ ns.x",
        DOUBLING % "ns.x + ns.x",
        DOUBLING % "ns.x * 2",
        DOUBLING % "ns.x.replace('x', 'xx')",
        DOUBLING % "[ns.x, ns.x] | join",
        "{% set x = 'x' * 99999 %}{{ x.join(x) }}",
        "{% set x = 'x' * 99999 %}{{ x | replace('x', x) }}",
        BOMB + "{{ ns.a }}",
        BOMB + "{{ ns.a ~ '' }}",
        BOMB + "{{ ns.a | tojson }}",
        BOMB + "{{ ns.a | string }}",
        BOMB + "{{ ns.a | pprint }}",
        BOMB + "{{ '%s' % (ns.a,) }}",
        BOMB + "{{ '{}'.format(ns.a) }}",
        BOMB + "{{ ns.a == ns.b }}",
        BOMB + "{{ ns.a in [ns.b] }}",
        BOMB + "{{ [ns.a, ns.b] | sort }}",
        BOMB + "{{ [ns.a] | select('eq', ns.b) | list }}",
        "x" * 2_000_000,
        "{% if 1 %}" * 2000,
        "{{ " + "(" * 5000 + ")" * 5000 + " }}",
    ],
)
def test_hostile_templates_are_stopped(source, monkeypatch):
    """Neither time nor memory runs away. A small budget keeps the test short."""
    monkeypatch.setattr(bounds, "BUDGET", 1 << 22)
    with pytest.raises(TemplateError) as caught:
        render(source)
    assert not isinstance(caught.value.__cause__, MemoryError)
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize(
    "source",
    [
        BOMB + "{{ ns.a == ns.b }}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}"
        "{{ f(99) }}",
    ],
)
def test_the_full_budget_is_a_matter_of_seconds(source):
    """The dearest ways to spend it, on a slow and busy machine."""
    begin_s = time.monotonic()
    with pytest.raises(TemplateError, match="budget"):
        render(source)
    assert time.monotonic() - begin_s < 60


def test_long_conversations_are_within_the_budget():
    """Two thousand turns and four million characters."""
    source = (
        "{% for m in messages %}{{ '<|' + m.role + '|>' + m['content'] | trim + '\\n' }}"
        "{% if loop.last and m.role != 'user' %}x{% endif %}{% endfor %}"
    )
    messages = [{"role": "user", "content": " a" * 1000}] * 2000
    assert len(render(source, messages=messages)) == 2000 * (1999 + len("<|user|>\n"))


def test_a_model_without_a_template_says_so():
    """And says what to do."""
    with pytest.raises(TemplateError, match="pass chat_template"):
        ChatTemplates({}, {}).render(None, messages=MESSAGES)
