"""The OpenAI protocol: chat completions, completions, models."""

from octavo.serving.openai.routes import router

__all__ = ["router"]
