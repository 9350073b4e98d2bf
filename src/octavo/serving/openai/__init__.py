"""The OpenAI protocol: chat completions, completions, models, files, batches."""

from octavo.serving.openai.batches import router as batches_router
from octavo.serving.openai.embeddings import router as embeddings_router
from octavo.serving.openai.files import router as files_router
from octavo.serving.openai.routes import router

__all__ = ["batches_router", "embeddings_router", "files_router", "router"]
