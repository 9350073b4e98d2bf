"""Batches that the server works on beside its clients."""

from octavo.serving.batches.batch import Batch
from octavo.serving.batches.worker import Batches

__all__ = ["Batch", "Batches"]
