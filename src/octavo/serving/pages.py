"""Lists in pages, as OpenAI's protocol has them: ?limit, ?after, ?order."""

from __future__ import annotations

from typing import Any

from fastapi import Request

from octavo.serving.errors import invalid


def page_of(
    request: Request, objects: list[dict[str, Any]], *, max_limit: int, limit: int | None = None
) -> dict[str, Any]:
    """The list object with the page that the query asks for. objects: oldest first, each with an
    id. limit: how many when the query does not say (None: max_limit)."""
    query = request.query_params
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise invalid("order", "order: expected asc or desc")
    count = _limit(query.get("limit"), max_limit, limit or max_limit)
    if order == "desc":
        objects = objects[::-1]
    after = query.get("after")
    if after is not None:
        places = [place for place, one in enumerate(objects) if one["id"] == after]
        if not places:
            raise invalid("after", "after: there is nothing with this id")
        objects = objects[places[0] + 1 :]
    shown = objects[:count]
    return {
        "object": "list",
        "data": shown,
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
        "has_more": len(objects) > len(shown),
    }


def _limit(text: str | None, most: int, usual: int) -> int:
    if text is None:
        return usual
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= most):
        raise invalid("limit", f"limit: expected an integer from 1 to {most:,}")
    return int(text[:9])
