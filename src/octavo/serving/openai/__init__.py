"""The OpenAI protocol: chat completions, completions, models."""

from octavo.serving.openai.routes import COMPONENTS, router

__all__ = ["COMPONENTS", "router"]
