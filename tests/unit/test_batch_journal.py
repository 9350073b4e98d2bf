"""A batch's journal holds whole records whatever happens to the process or the disk."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.batch import BadLine, Item, Journal, Tally, answer_record, bad_line_record
from octavo.batch.journal import JournalError
from octavo.batch.records import Answer


def record(name: str, status: int = 200) -> dict[str, Any]:
    item = Item(1, name, "/v1/completions", {})
    body = {"usage": {"prompt_tokens": 2, "completion_tokens": 3}}
    return answer_record(item, Answer(status, body))


def open_journal(path: Path) -> tuple[Journal, Tally]:
    tally = Tally()
    return Journal(path, tally.add), tally


def write(path: Path, *names: str) -> bytes:
    with open_journal(path)[0] as journal:
        for name in names:
            journal.append(record(name))
    return path.read_bytes()


def test_what_was_appended_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "out"
    write(path, "a", "b")
    with open_journal(path)[0] as journal:
        journal.append(record("c", 400))
        journal.append(bad_line_record(BadLine(7, None, "invalid_json_line", "no")))
    journal, tally = open_journal(path)
    journal.close()
    assert tally.settled_ids == {"a", "b", "c"}
    assert tally.settled_lines == {7}
    assert (tally.completed, tally.failed) == (2, 2)
    assert (tally.input_tokens, tally.output_tokens) == (4, 6)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_a_torn_end_is_cut_off(data: st.DataObject, tmp_path_factory: Any) -> None:
    path = tmp_path_factory.mktemp("torn") / "out"
    whole = write(path, "a", "bé", "c")
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    journal, tally = open_journal(path)
    with journal:
        assert len(tally.settled_ids) == whole[:cut].count(b"\n")
        journal.append(record("d"))
    lines = path.read_bytes().splitlines()
    assert [json.loads(line)["custom_id"] for line in lines][-1] == "d"
    assert len(lines) == len(tally.settled_ids) + 1


@pytest.mark.parametrize(
    "content", [b"my notes\n", b"my notes", b'{"a": 1}\n', b"[1]\n", b"\n", b"\xff\xfe\n"]
)
def test_a_file_of_someone_else_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes"
    path.write_bytes(content)
    with pytest.raises(JournalError, match="is not a record"):
        open_journal(path)
    assert path.read_bytes() == content


def test_only_one_process_writes(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with open_journal(path)[0], pytest.raises(JournalError, match="another process"):
        open_journal(path)
    open_journal(path)[0].close()


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="cannot open"):
        open_journal(tmp_path / "none" / "out")


def test_a_full_disk_takes_nothing_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk takes half of a record; what was whole stays, and later there is room again."""
    path = tmp_path / "out"
    journal, _ = open_journal(path)
    journal.append(record("a"))
    whole = path.read_bytes()
    real, room = os.pwrite, [40]

    def pwrite(descriptor: int, data: bytes, at: int) -> int:
        if room[0] == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = real(descriptor, bytes(data)[: room[0]], at)
        room[0] -= count
        return count

    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(JournalError, match="No space left on device"):
        journal.append(record("b"))
    assert path.read_bytes() == whole
    monkeypatch.undo()
    journal.append(record("b"))
    journal.close()
    _, tally = open_journal(path)
    assert tally.settled_ids == {"a", "b"}
