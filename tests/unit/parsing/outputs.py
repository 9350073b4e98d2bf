"""What models write, by format, and what it means. Tables; the tests cut them everywhere."""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.parsing import Tool

WEATHER = Tool(
    "get_weather",
    "Current weather.",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "units": {"enum": ["C", "F"]},
            "detail": {"type": "boolean"},
        },
        "required": ["city"],
    },
)
NOW = Tool("now", "The time.")
TOOLS = (WEATHER, NOW)


@dataclass(frozen=True)
class Case:
    """An answer and what it means. calls: (name, arguments as text). prompt: its end, where that
    matters. with_tools: whether the request had any."""

    tools: str
    answer: str
    text: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    thinking: str = "none"
    prompt: str = ""
    with_tools: bool = field(default=True, kw_only=True)


PARIS = ("get_weather", '{"city": "Paris"}')
OSLO = ("get_weather", '{"city": "Oslo", "days": 2}')
TIME = ("now", "{}")
CUT = '{"city": "Par'

HERMES = [
    Case("hermes", "Hello there.", "Hello there."),
    Case("hermes", "  Hello\n\n", "  Hello\n\n"),
    Case(
        "hermes",
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>',
        calls=(PARIS,),
    ),
    Case(
        "hermes",
        'Let me see.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n'
        '</tool_call>\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
        "Let me see.",
        calls=(PARIS, TIME),
    ),
    Case(
        "hermes",
        'A\n<tool_call>{"name":"now","arguments":{}}</tool_call>\n\nB <tool_call>{"name": "now"}'
        "</tool_call> ",
        "A\n\nB",
        calls=(TIME, TIME),
    ),
    Case(  # arguments first, further keys, arguments as a string
        "hermes",
        '<tool_call>{"id": [1, {"a": "}"}], "arguments": {"city": "Paris"}, "name": "get_weather"}'
        '</tool_call><tool_call>{"name": "get_weather", "arguments": "{\\"city\\": \\"Paris\\"}"}'
        "</tool_call>",
        calls=(PARIS, PARIS),
    ),
    Case(
        "hermes",
        '<tool_call>{"type": "function", "function": {"name": "get_weather", "parameters": '
        '{"city": "Paris"}}}</tool_call>',
        calls=(PARIS,),
    ),
    Case(  # strings that look like the end
        "hermes",
        '<tool_call>{"name": "get_weather", "arguments": {"city": "</tool_call>}]\\"\\\\"}}'
        "</tool_call>",
        calls=(("get_weather", '{"city": "</tool_call>}]\\"\\\\"}'),),
    ),
    Case("hermes", '<tool_call>{"name": "now", "arguments": null}</tool_call>', calls=(TIME,)),
    Case(  # without its end marker
        "hermes",
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}',
        calls=(PARIS,),
    ),
    Case(  # in lists, though nobody asked for one
        "hermes",
        '<tool_call>[{"name": "now", "arguments": {}}, {"name": "get_weather", "arguments": '
        '{"city": "Paris"}}]</tool_call>done',
        "done",
        calls=(TIME, PARIS),
    ),
    Case("hermes", '{"name": "now", "arguments": {}}', calls=(TIME,)),  # bare, of a known function
    Case("hermes", '```json\n{"name": "now", "arguments": {}}\n```', calls=(TIME,)),
    Case("hermes", '{"name": "Bob", "arguments": {}}', '{"name": "Bob", "arguments": {}}'),
    Case("hermes", '{"age": 5, "name": "now"}', '{"age": 5, "name": "now"}'),
    Case("hermes", '```json\n{"a": 1}\n```', '```json\n{"a": 1}\n```'),
    Case("hermes", "<tool_call>", "<tool_call>"),
    Case("hermes", "a < b <tool b <tool_cal", "a < b <tool b <tool_cal"),
    Case("hermes", "x \n<tool_call>\nnothing", "x \n<tool_call>\nnothing"),
    Case("hermes", '<tool_call>{"name": 5}</tool_call>', '<tool_call>{"name": 5}</tool_call>'),
    Case(
        "hermes",
        '<tool_call>{"arguments": {}}</tool_call>',
        '<tool_call>{"arguments": {}}</tool_call>',
    ),
    Case(
        "hermes",
        '<tool_call>{"name": "now", "arguments": 5}',
        '<tool_call>{"name": "now", "arguments": 5}',
    ),
    Case("hermes", '<tool_call>{"name": "n', '<tool_call>{"name": "n'),
    Case(  # cut off: the arguments so far
        "hermes",
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Par',
        calls=(("get_weather", CUT),),
    ),
    Case(  # broken off: what follows is text
        "hermes",
        '<tool_call>{"name": "get_weather", "arguments": {"city": <oops>}} and so on',
        "<oops>}} and so on",
        calls=(("get_weather", '{"city": '),),
    ),
    Case(
        "hermes",
        '<tool_call>bad</tool_call><tool_call>{"name": "now"}</tool_call>',
        "<tool_call>bad</tool_call>",
        calls=(TIME,),
    ),
    Case(
        "hermes",
        '<tool_call>{"name": "now"}</tool_call>',
        '<tool_call>{"name": "now"}</tool_call>',
        with_tools=False,
    ),
]

JSON = [
    Case("llama3", '{"name": "get_weather", "parameters": {"city": "Paris"}}', calls=(PARIS,)),
    Case(
        "llama3",
        '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}}',
        calls=(PARIS,),
    ),
    Case(
        "llama3",
        '{"name": "get_weather", "parameters": {"city": "Paris"}}; '
        '{"name": "now", "parameters": {}}',
        calls=(PARIS, TIME),
    ),
    Case("llama3", '{"type": "function", "name": "now", "parameters": {}}', calls=(TIME,)),
    Case("llama3", "<|python_tag|>print(5)", "<|python_tag|>print(5)"),
    Case("llama3", 'It is {"name": "now"}', 'It is {"name": "now"}'),
    Case(
        "mistral",
        '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris"}}, '
        '{"name": "now", "arguments": {}, "id": "abcdefghi"}]',
        calls=(PARIS, TIME),
    ),
    Case("mistral", "[TOOL_CALLS] sorry", "[TOOL_CALLS] sorry"),
    Case("mistral", "[TOOL] [TOOL_CALLS", "[TOOL] [TOOL_CALLS"),
    Case("granite", '<|tool_call|>[{"name": "now", "arguments": {}}]', calls=(TIME,)),
    Case(
        "cohere",
        '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "get_weather", "parameters": '
        '{"city": "Paris"}}\n]<|END_ACTION|>',
        calls=(PARIS,),
    ),
    Case("nemotron", '<TOOLCALL>[{"name": "now", "arguments": {}}]</TOOLCALL>', calls=(TIME,)),
    Case("apriel", '<tool_calls>[{"name": "now", "arguments": {}}]</tool_calls>', calls=(TIME,)),
    Case("firefunction", ' functools[{"name": "now", "arguments": {}}]', calls=(TIME,)),
    Case("firefunction", "import functools\n", "import functools\n"),
]

NAMED = [
    Case("mistral_args", '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}', calls=(PARIS,)),
    Case(
        "mistral_args",
        'Well.[TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}',
        "Well.",
        calls=(TIME, PARIS),
    ),
    Case(
        "mistral_id",
        '[TOOL_CALLS]get_weather[CALL_ID]abc123def[ARGS]{"city": "Paris"}',
        calls=(PARIS,),
    ),
    Case("mistral_args", "[TOOL_CALLS]now[ARGS]x", "[TOOL_CALLS]now[ARGS]x"),
    Case("mistral_args", "[TOOL_CALLS]not a name[ARGS]{}", "[TOOL_CALLS]not a name[ARGS]{}"),
    Case(
        "deepseek_v3",
        "Sure.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n"
        '```json\n{"city": "Paris"}\n```<｜tool▁call▁end｜>\n'
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n"
        "```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "Sure.",
        calls=(PARIS, TIME),
    ),
    Case(
        "deepseek_v31",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>"
        '{"city": "Paris"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}'
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        calls=(PARIS, TIME),
    ),
    Case("deepseek_v31", "<｜tool▁calls▁begin｜>hm", "<｜tool▁calls▁begin｜>hm"),
    Case(
        "kimi_k2",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
        '<|tool_call_argument_begin|>{"city": "Paris"}<|tool_call_end|><|tool_call_begin|>'
        "functions.now:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
        calls=(PARIS, TIME),
    ),
    Case("functionary", '<function=get_weather>{"city": "Paris"}</function>', calls=(PARIS,)),
]

XML = [
    Case(
        "qwen3_coder",
        "Ok.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n"
        "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>",
        "Ok.",
        calls=(OSLO,),
    ),
    Case(
        "qwen3_coder",
        "<tool_call>\n<function=now>\n</function>\n</tool_call>\n<tool_call>\n<function=get_weather>"
        "\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>",
        calls=(TIME, PARIS),
    ),
    Case(  # text with line breaks, quotes and tags; Python's spelling of true; an unknown key
        "qwen3_coder",
        '<function=get_weather>\n<parameter=city>\n"A"\n <b>\n\n</parameter>\n<parameter=detail>\n'
        "True\n</parameter>\n<parameter=more>\nhi\n</parameter>\n</function>",
        calls=(("get_weather", '{"city": "\\"A\\"\\n <b>\\n", "detail": true, "more": "hi"}'),),
    ),
    Case(  # numbers stay text where the schema says so
        "qwen3_coder",
        "<tool_call><function=get_weather><parameter=city>75</parameter><parameter=units>C"
        "</parameter></function></tool_call>",
        calls=(("get_weather", '{"city": "75", "units": "C"}'),),
    ),
    Case(  # a forgotten end tag
        "qwen3_coder",
        "<function=get_weather><parameter=city>Oslo<parameter=days>2</function>",
        calls=(OSLO,),
    ),
    Case(
        "qwen3_coder",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nPar",
        calls=(("get_weather", CUT),),
    ),
    Case("qwen3_coder", "<tool_call>\n<function=", "<tool_call>\n<function="),
    Case(  # a parameter that is none, behind one that is
        "qwen3_coder",
        '<function=get_weather><parameter=city>Paris</parameter> <parameter=b"x</function>',
        '<parameter=b"x</function>',
        calls=(PARIS,),
    ),
    Case("qwen3_coder", "<function=now> eh", "<function=now> eh"),
    Case(
        "glm4",
        "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n"
        "<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
        calls=(OSLO,),
    ),
    Case(
        "glm4",
        "<tool_call>now</tool_call><tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris"
        "</arg_value></tool_call>",
        calls=(TIME, PARIS),
    ),
    Case("glm4", "<tool_call>hello world", "<tool_call>hello world"),
    Case(
        "seed_oss",
        "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Oslo</parameter>\n"
        "<parameter=days>2</parameter>\n</function>\n</seed:tool_call>",
        calls=(OSLO,),
    ),
    Case(
        "minimax_m2",
        '<minimax:tool_call>\n<invoke name="get_weather">\n'
        '<parameter name="city">Oslo</parameter>\n'
        '<parameter name="days">2</parameter>\n</invoke>\n<invoke name="now"></invoke>\n'
        "</minimax:tool_call>",
        calls=(OSLO, TIME),
    ),
    Case(
        "deepseek_v32",
        '\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n<｜DSML｜parameter '
        'name="city" string="true">Oslo</｜DSML｜parameter>\n<｜DSML｜parameter name="days" '
        'string="false">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
        calls=(OSLO,),
    ),
]

THINKING = [
    Case("none", "<think>\nHm.\n</think>\n\nYes.", "Yes.", "Hm.", thinking="think"),
    Case("none", "Hm.\n</think>\n\nYes.", "Yes.", "Hm.", thinking="think", prompt="<think>\n"),
    Case("none", "<think>Hm", "", "Hm", thinking="think"),
    Case("none", "<think></think>Yes", "Yes", thinking="think"),
    Case("none", "Yes <think>no</think>", "Yes <think>no</think>", thinking="think"),
    Case("none", "a </think> b", "a </think> b", thinking="think", prompt="</think>\n\n"),
    Case("none", "<thin", "<thin", thinking="think"),
    Case("none", "<think> a </thin b </think>c", "c", "a </thin b", thinking="think"),
    Case(
        "hermes",
        '<think>Call it: <tool_call>{"name": "now"}</tool_call></think>\n\nSo:\n<tool_call>\n'
        '{"name": "now", "arguments": {}}\n</tool_call>',
        "So:",
        'Call it: <tool_call>{"name": "now"}</tool_call>',
        calls=(TIME,),
        thinking="think",
    ),
    Case("none", "[THINK]Hm[/THINK]Yes", "Yes", "Hm", thinking="mistral"),
    Case(
        "mistral_args",
        "[THINK]Hm[/THINK][TOOL_CALLS]now[ARGS]{}",
        "",
        "Hm",
        calls=(TIME,),
        thinking="mistral",
    ),
    Case(
        "none",
        "<think>Hm</think>\n\n<response>Yes, <b>\n</response>",
        "Yes, <b>",
        "Hm",
        thinking="granite",
    ),
    Case("none", "<|channel>thought\nHm\n<channel|>Yes", "Yes", "Hm", thinking="gemma4"),
    Case(
        "cohere",
        "<|START_THINKING|>Hm<|END_THINKING|><|START_RESPONSE|>Yes<|END_RESPONSE|>",
        "Yes",
        "Hm",
        thinking="cohere",
    ),
]

_S = "<|start|>assistant"
HARMONY = [
    Case(
        "harmony",
        f"<|channel|>analysis<|message|>Hm.<|end|>{_S}<|channel|>final<|message|>Yes.",
        "Yes.",
        "Hm.",
        prompt=_S,
    ),
    Case(
        "harmony",
        f"<|channel|>analysis<|message|>Hm.<|end|>{_S}<|channel|>commentary to=functions."
        'get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>',
        "",
        "Hm.",
        calls=(PARIS,),
        prompt=_S,
    ),
    Case(
        "harmony",
        " to=functions.now<|channel|>commentary json<|message|>{}",
        calls=(TIME,),
        prompt=_S,
    ),
    Case("harmony", "<|channel|>commentary to=functions.now<|message|>", "", calls=(("now", ""),)),
    Case(
        "harmony",
        f"<|channel|>commentary<|message|>I will look.<|end|>{_S}<|channel|>commentary "
        f"to=functions.now <|constrain|>json<|message|> {{}} <|call|>",
        "I will look.",
        calls=(TIME,),
    ),
    Case(
        "harmony",
        f"<|channel|>analysis<|message|>A<|end|>{_S}<|channel|>analysis<|message|>B<|end|>{_S}"
        "<|channel|>final<|message|>C<|return|>",
        "C",
        "A\nB",
    ),
    Case("harmony", "<|channel|>commentary to=functions.now<|message|>what", "what"),
    Case("harmony", "no messages", "no messages"),
    Case("harmony", "more.", "more.", prompt=f"{_S}<|channel|>final<|message|>Some"),
    Case(
        "harmony",
        "<|channel|>commentary to=functions.now<|message|>{}",
        "{}",
        with_tools=False,
    ),
    Case(  # where a recipient may stand, and a type without its marker
        "harmony",
        f"<|channel|>commentary to=functions.now code<|message|>{{}}<|call|>{_S}"
        f" to=functions.get_weather<|channel|>commentary <|constrain|>json<|message|>{PARIS[1]}"
        f"<|call|>{_S}<|channel|>commentary to=functions.now<|constrain|>json<|message|>{{}}",
        calls=(TIME, PARIS, TIME),
    ),
    Case("harmony", "<|channel|>commentary to=functions.now<|message|> \n<|call|>", calls=(TIME,)),
    Case(  # built-in tools are not ours
        "harmony",
        f"<|channel|>analysis to=browser.search code<|message|>{{}}<|call|>{_S}"
        "<|channel|>commentary to=python<|message|>1+1<|call|>",
        "1+1",
        "{}",
    ),
    Case(  # control tokens that end nothing are text
        "harmony",
        "<|channel|>final<|message|>a<|channel|>b<|message|>c<|constrain|>d<|en<|end",
        "a<|channel|>b<|message|>c<|constrain|>d<|en<|end",
    ),
]

HARMONY_MALFORMED = [
    Case("harmony", "<|channel|>ana", ""),  # cut off in a header: nothing was said
    Case("harmony", "<|channel|>commentary to=func", ""),
    Case("harmony", "<|channel|>commentary t", ""),
    Case("harmony", f"<|channel|>final<|message|>Yes.<|end|>{_S}<|channel|>", "Yes."),
    Case("harmony", "", ""),
    Case("harmony", "t", "t"),
    Case("harmony", "Just text, no format.", "Just text, no format."),
    Case(  # no end of the message before
        "harmony",
        f"<|channel|>analysis<|message|>Hm.{_S}<|channel|>final<|message|>Yes.<|return|>",
        "Yes.",
        "Hm.",
    ),
    Case(  # no start
        "harmony",
        "<|channel|>analysis<|message|>Hm.<|end|>\n<|channel|>final<|message|>Yes.<|return|>",
        "Yes.",
        "Hm.",
    ),
    Case(  # a start without a role
        "harmony",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|><|channel|>final<|message|>Yes.",
        "Yes.",
        "Hm.",
    ),
    Case("harmony", "<|start|> to=functions.now<|message|>{}<|call|>", calls=(TIME,)),
    Case("harmony", "<|start|>functions.now<|message|>{}<|call|>", "{}"),
    Case(  # no begin of the content
        "harmony",
        f"<|channel|>analysis Hm, well.<|end|>{_S}<|channel|>final Yes, it is.<|return|>",
        "Yes, it is.",
        "Hm, well.",
    ),
    Case("harmony", "<|channel|>commentary to=functions.now {}<|call|>", calls=(TIME,)),
    Case(  # words in a header that have no place there
        "harmony",
        "<|channel|>final and then some<|message|>Yes.<|return|>",
        "and then someYes.",
    ),
    Case(  # text between messages
        "harmony",
        f"<|channel|>final<|message|>Yes.<|end|> And so on.{_S}<|channel|>final<|message|>No.",
        "Yes.\nAnd so on.\nNo.",
    ),
    Case("harmony", "Well.<|channel|>final<|message|>Yes.", "Well.\nYes."),
    Case("harmony", "<|message|>Yes.<|end|><|end|><|return|>No.", "Yes.\nNo."),
    Case("harmony", "<|channel|><|message|>Yes.<|constrain|>", "Yes.<|constrain|>"),
    Case("harmony", "<|channel|>final<|channel|>final<|message|>Yes.", "Yes."),
    Case("harmony", "<|constrain|>json<|message|>{}", "{}"),
    Case("harmony", "to=<|channel|>final<|message|>Yes.", "Yes."),
    Case(  # in another's name
        "harmony",
        "<|channel|>commentary to=functions.now<|message|>{}<|call|><|start|>functions.now "
        "to=assistant<|channel|>commentary<|message|>12:00<|end|><|start|>user<|message|>And?"
        "<|end|><|start|>nobody<|channel|>final<|message|>Well.",
        "12:00\nAnd?\nWell.",
        calls=(TIME,),
    ),
]

CASES = [*HERMES, *JSON, *NAMED, *XML, *THINKING, *HARMONY, *HARMONY_MALFORMED]
