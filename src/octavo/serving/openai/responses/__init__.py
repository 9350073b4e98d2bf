"""OpenAI's responses: create, stream, look up, cancel, delete, and go on from an earlier one."""

from octavo.serving.openai.responses.routes import router
from octavo.serving.openai.responses.store import ResponseStore

__all__ = ["ResponseStore", "router"]
