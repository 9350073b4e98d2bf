"""Files that clients upload and batches write, in a folder."""

from octavo.serving.files.store import (
    MAX_LIFETIME_S,
    MIN_LIFETIME_S,
    OUTPUT_PURPOSE,
    FileStore,
    StoredFile,
    check_purpose,
    new_id,
    told_if_full,
    write_whole,
)
from octavo.serving.files.upload import Upload, receive_upload

__all__ = [
    "MAX_LIFETIME_S",
    "MIN_LIFETIME_S",
    "OUTPUT_PURPOSE",
    "FileStore",
    "StoredFile",
    "Upload",
    "check_purpose",
    "new_id",
    "receive_upload",
    "told_if_full",
    "write_whole",
]
