"""A file of requests, answered line by line: what `octavo batch` and /v1/batches share."""

from octavo.batch.journal import Journal
from octavo.batch.lines import (
    ENDPOINTS,
    PAIR_ENDPOINTS,
    BadLine,
    Item,
    count_lines,
    read_items,
)
from octavo.batch.records import Answer, Tally, answer_record, bad_line_record, is_good
from octavo.batch.run import run_items

__all__ = [
    "ENDPOINTS",
    "PAIR_ENDPOINTS",
    "Answer",
    "BadLine",
    "Item",
    "Journal",
    "Tally",
    "answer_record",
    "bad_line_record",
    "count_lines",
    "is_good",
    "read_items",
    "run_items",
]
