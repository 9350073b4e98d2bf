"""The pages against the program: commands exist with their options, links lead somewhere, and both
READMEs show the same commands and tables."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from octavo.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("deploy/**/*.md")])
OCTAVO: Any = typer.main.get_command(app)
READMES = (ROOT / "README.md", ROOT / "README.zh-CN.md")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_INLINE = re.compile(r"`(octavo [a-z][^`]*)`")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def commands(page: Path, inline: bool = True) -> Iterator[str]:
    """What a reader may type: lines of shell blocks, and commands within a sentence."""
    text = page.read_text(encoding="utf-8")
    for language, block in _BLOCK.findall(text):
        if language in ("sh", "bash", "console", ""):
            lines = block.replace("\\\n", " ").splitlines()
            yield from (line for line in lines if re.match(r"(\$ |.*\| )?octavo ", line))
    if inline:
        yield from (found.replace("\n", " ") for found in _INLINE.findall(text))


def words_of(line: str) -> list[str]:
    """The words of the part that calls octavo."""
    part = next(part for part in re.split(r"[|;]|&&", line) if "octavo " in part)
    try:
        words = shlex.split(part[part.index("octavo ") :], comments=True)
    except ValueError:  # a quotation that the sentence breaks off
        return []
    return words[1:]


def problem_of(words: list[str]) -> str | None:
    """What octavo does not know of a command line."""
    command = OCTAVO
    while words and hasattr(command, "commands"):
        if words[0].startswith("-") or words[0].isupper():
            break
        if words[0] not in command.commands:
            return f"no command {words[0]!r}"
        command, words = command.commands[words[0]], words[1:]
    known = {"--help", "-h"}
    for param in command.params:
        known |= {*param.opts, *param.secondary_opts}
    for word in words:
        option = word.split("=")[0].rstrip(",.")
        if re.match(r"--?[a-z]", option) and option not in known:
            return f"no option {option!r}"
    return None


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_on_a_page_exist(page: Path):
    problems = [
        f"{line.strip()}: {problem}"
        for line in commands(page)
        if (problem := problem_of(words_of(line)))
    ]
    assert not problems


def anchors(page: Path) -> set[str]:
    """What #links may name, as GitHub makes it of headings."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
        plain = re.sub(r"[^\w\- ]", "", heading.strip().lower())
        found.add(plain.replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_of_a_page_lead_somewhere(page: Path):
    for link in _LINK.findall(page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{link}: no such file"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{link}: no such heading"


def shown(page: Path) -> tuple[list[list[str]], list[str], set[str]]:
    """Commands, rows of numbers, and files that a README points to."""
    text = page.read_text(encoding="utf-8")
    rows = [row for row in re.findall(r"^\|.*\|$", text, re.MULTILINE) if "x |" in row]
    numbers = [re.sub(r"[^0-9.,x|-]", "", row.split("|", 3)[3]) for row in rows]
    links = {link.partition("#")[0] for link in _LINK.findall(text) if "README" not in link}
    typed = [words_of(line) for line in commands(page, inline=False)]
    return sorted(typed), numbers, links


def test_both_readmes_show_the_same():
    english, chinese = (shown(page) for page in READMES)
    assert english[0] == chinese[0]
    assert english[1] == chinese[1]
    assert english[2] == chinese[2]


def test_what_does_not_exist_is_found():
    assert problem_of(words_of("cat x | octavo run smollm2 -q --top-k=3  # fine")) is None
    assert problem_of(words_of("octavo bench engine smollm2 -c 4")) == "no option '-c'"
    assert problem_of(words_of("octavo frobnicate x")) == "no command 'frobnicate'"


def helps(command: Any, name: str = "octavo") -> Iterator[tuple[str, str]]:
    """Name and help of a command and those below it."""
    yield name, command.help or ""
    for word, below in getattr(command, "commands", {}).items():
        yield from helps(below, f"{name} {word}")


@pytest.mark.parametrize(("name", "text"), list(helps(OCTAVO)))
def test_examples_of_a_command_are_of_that_command_and_right(name: str, text: str):
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
    for line in (p for p in paragraphs if re.match(r"(\S.*\| )?octavo ", p)):
        assert f"{name} " in line
        assert problem_of(words_of(line)) is None
