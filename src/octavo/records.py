"""Records: classes of named fields.

Most of Octavo's are msgspec's Structs, since a dataclass compiles its methods from text when its
module is imported: 0.6 ms each, and a start imports more than a hundred of them. What users make,
print and take apart (options, sampling parameters, outputs) are dataclasses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["replace"]

if TYPE_CHECKING:
    from dataclasses import replace  # type checkers know what it takes
else:
    import dataclasses

    from msgspec import Struct, structs

    def replace(record: Any, /, **changes: Any) -> Any:
        """A copy of a record of either kind with some fields changed."""
        how = structs.replace if isinstance(record, Struct) else dataclasses.replace
        return how(record, **changes)
