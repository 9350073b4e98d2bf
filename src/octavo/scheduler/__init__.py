"""Decides what the next step computes. Pure: it knows queues and blocks, no backend, no text."""

from octavo.scheduler.queue import WaitingQueue
from octavo.scheduler.schedule import Chunk, Schedule
from octavo.scheduler.scheduler import Scheduler, SchedulerConfig
from octavo.scheduler.sequence import Sequence, Status

__all__ = [
    "Chunk",
    "Schedule",
    "Scheduler",
    "SchedulerConfig",
    "Sequence",
    "Status",
    "WaitingQueue",
]
