"""Measuring: seeded workloads run on an engine, and what came out of the runs.

`bench_engine` is the library behind `octavo bench engine`; `describe_machine` says where it ran.
"""

from octavo.bench.engine import bench_engine, run_once
from octavo.bench.machine import Machine, describe_machine
from octavo.bench.results import EngineResult, Run, Summary, Workload, percentile

__all__ = [
    "EngineResult",
    "Machine",
    "Run",
    "Summary",
    "Workload",
    "bench_engine",
    "describe_machine",
    "percentile",
    "run_once",
]
