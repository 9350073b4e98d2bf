"""Tokenizers of Hugging Face folders against the library that wrote them."""

import json

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE, WordPiece

from octavo.errors import FormatError
from octavo.tokenizer.huggingface import from_folder
from octavo.tokenizer.pieces import BYTE_OF_CHAR, SPACE_MARK
from tests.support.vocabularies import byte_level

TEXTS = st.text(st.sampled_from("ab é😀1<s>"), max_size=30)


def byte_level_library():
    """GPT-2's kind, with a control token, a plain added token and a begin token put before."""
    metadata = byte_level()
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    pieces = [*BYTE_OF_CHAR, *("".join(merge) for merge in merges)]
    library = tokenizers.Tokenizer(BPE({piece: i for i, piece in enumerate(pieces)}, merges))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens(["<s>", "<|im_end|>"])
    library.add_tokens(["<tool>"])
    begin = library.token_to_id("<s>")
    library.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", begin)]
    )
    return library


def spm_library():
    """Llama's kind: a space put before, bytes for what is no piece."""
    pieces = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += [SPACE_MARK, "a", "b", SPACE_MARK + "a", "ab"]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    merges = [(SPACE_MARK, "a"), ("a", "b")]
    model = BPE(vocab, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    library = tokenizers.Tokenizer(model)
    library.normalizer = normalizers.Sequence(
        [normalizers.Prepend(SPACE_MARK), normalizers.Replace(" ", SPACE_MARK)]
    )
    library.decoder = decoders.Sequence(
        [
            decoders.Replace(SPACE_MARK, " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    library.add_special_tokens(["<unk>", "<s>"])
    return library


def load(folder, library, generation_config=None, **config):
    """Write the folder and read it."""
    library.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return from_folder(folder, generation_config or {})


LIBRARIES = {"byte_level": byte_level_library(), "spm": spm_library()}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """Name -> (library, tokenizer)."""
    return {
        name: (library, load(tmp_path_factory.mktemp("hf"), library, bos_token="<s>"))
        for name, library in LIBRARIES.items()
    }


@given(st.sampled_from(sorted(LIBRARIES)), TEXTS)
def test_ids_and_text_are_the_librarys(loaded, name, text):
    """With and without added tokens, special tokens shown or not."""
    library, tokenizer = loaded[name]
    ids = library.encode(text).ids
    assert tokenizer.encode(text) == ids
    assert (
        tokenizer.encode(text, add_special_tokens=False)
        == library.encode(text, add_special_tokens=False).ids
    )
    for skip in (True, False):
        shown = tokenizer.decode(ids, skip_special_tokens=skip)
        assert shown == library.decode(ids, skip_special_tokens=skip)


def test_roles_come_from_the_files_beside_it(tmp_path):
    """bos and eos from tokenizer_config.json, more ends from generation_config.json and by name."""
    library = byte_level_library()
    tokenizer = load(
        tmp_path, library, {"eos_token_id": [5, 6]}, bos_token="<s>", eos_token={"content": "a"}
    )
    end = library.token_to_id("<|im_end|>")
    assert tokenizer.bos_token_id == library.token_to_id("<s>")
    assert tokenizer.add_bos
    assert tokenizer.eos_token_ids == (library.token_to_id("a"), 5, 6, end)
    assert tokenizer.is_special(end)
    assert not tokenizer.is_special(library.token_to_id("<tool>"))
    assert tokenizer.token_bytes(end) == b"<|im_end|>"


def test_text_of_a_special_token_can_be_plain_text(tmp_path):
    """For text from strangers."""
    library = byte_level_library()
    tokenizer = load(tmp_path, library)
    begin = library.token_to_id("<s>")
    assert tokenizer.encode("<s>", add_special_tokens=False) == [begin]
    assert begin not in tokenizer.encode("<s>", add_special_tokens=False, parse_special=False)


def test_templates_come_from_either_place(tmp_path):
    """A file of its own wins over tokenizer_config.json."""
    library = byte_level_library()
    named = [{"name": "default", "template": "A"}, {"name": "tool_use", "template": "B"}]
    assert load(tmp_path, library, chat_template="T").chat_template == "T"
    tokenizer = load(tmp_path, library, chat_template=named, bos_token="<s>")
    assert tokenizer.render_chat([], tools=[{}]) == "B"
    (tmp_path / "chat_template.jinja").write_text("{{ bos_token }}file")
    assert load(tmp_path, library, bos_token="<s>").render_chat([]) == "<s>file"


def test_wordpiece_decodes_to_words(tmp_path):
    """ "##" continues a word."""
    vocab = {"[UNK]": 0, "hello": 1, "wor": 2, "##ld": 3}
    library = tokenizers.Tokenizer(WordPiece(vocab, unk_token="[UNK]"))
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece()
    assert load(tmp_path, library).decode([1, 2, 3]) == "hello world"


def test_a_folder_without_a_tokenizer_has_none(tmp_path):
    """Then ids go in and out."""
    assert from_folder(tmp_path, {}) is None


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", "{"),
        ("tokenizer.json", '{"model": {"type": "BPE", "vocab": 3}}'),
        ("tokenizer_config.json", "[1"),
        ("tokenizer_config.json", "[1]"),
    ],
)
def test_broken_files_are_named(tmp_path, name, content):
    """Each is a FormatError with the file's name."""
    byte_level_library().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / name).write_text(content)
    with pytest.raises(FormatError, match=name):
        from_folder(tmp_path, {})


def test_what_the_library_panics_over_is_an_error_that_names_the_file(tmp_path):
    """A post-processor that names a token without saying what it is."""
    byte_level_library().save(str(tmp_path / "tokenizer.json"))
    state = json.loads((tmp_path / "tokenizer.json").read_text())
    state["post_processor"]["special_tokens"] = {}
    (tmp_path / "tokenizer.json").write_text(json.dumps(state))
    with pytest.raises(FormatError, match=r"tokenizer\.json.*fails"):
        from_folder(tmp_path, {})


def test_a_text_that_the_library_fails_on_is_an_error_that_names_the_file(tmp_path):
    """A vocabulary without its token for unknown words."""
    library = tokenizers.Tokenizer(WordPiece({"a": 0, "##b": 1}, unk_token="[UNK]"))
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer = from_folder(tmp_path, {})
    assert tokenizer is not None
    assert tokenizer.encode("ab") == [0, 1]
    with pytest.raises(FormatError, match=r"tokenizer\.json.*UNK"):
        tokenizer.encode("xyz")
