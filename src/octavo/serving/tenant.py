"""Whom a request belongs to."""

from __future__ import annotations

from fastapi import Request


def key_name(request: Request) -> str:
    """The name of the API key it came with; "" if the server wants none."""
    return str(getattr(request.state, "tenant", ""))


def tenant_of(request: Request, user: str | None = None) -> str:
    """Who shares the service with others: the API key, or, on a server without keys, the user
    that the body names. A user cannot step out of the share of a key."""
    return key_name(request) or (f"user:{user}" if user else "")
