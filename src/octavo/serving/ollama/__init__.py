"""The Ollama protocol: chat, generate, embed, and what its clients ask about models."""

from octavo.serving.ollama.routes import router

__all__ = ["router"]
