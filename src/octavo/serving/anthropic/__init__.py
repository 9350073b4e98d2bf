"""The Anthropic protocol: messages, streamed or whole, and counting their tokens."""

from octavo.serving.anthropic.models import list_models, show_model
from octavo.serving.anthropic.routes import router

__all__ = ["list_models", "router", "show_model"]
