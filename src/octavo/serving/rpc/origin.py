"""Who calls, and by when the answer must be there."""

from __future__ import annotations

import time
from dataclasses import dataclass

from octavo.serving.context import Serving
from octavo.serving.record import current_record
from octavo.serving.rpc.access import tenant_of
from octavo.serving.rpc.status import Context


@dataclass(frozen=True)
class Origin:
    """deadline_s: on the monotonic clock."""

    tenant: str
    deadline_s: float | None


def origin_of(serving: Serving, context: Context) -> Origin:
    """What a call's metadata and deadline say."""
    left = context.time_remaining()
    deadline_s = None if left is None else time.monotonic() + float(left)
    tenant = tenant_of(context.invocation_metadata(), serving.keyring)
    record = current_record()
    if record is not None:
        record.tenant = tenant
    return Origin(tenant, deadline_s)
