"""Load for a server: when requests arrive, what they ask, how long answers take.

`bench_server` is the library behind `octavo bench serve`; it works against any server that speaks
OpenAI's protocol.
"""

from octavo.bench.load.arrivals import ClosedLoop, OpenLoop, Trace, read_trace
from octavo.bench.load.client import Target
from octavo.bench.load.html import write_html
from octavo.bench.load.lengths import Lengths
from octavo.bench.load.prompts import PromptMix
from octavo.bench.load.results import LoadResult, RequestRecord, Slo
from octavo.bench.load.runner import bench_server

__all__ = [
    "ClosedLoop",
    "Lengths",
    "LoadResult",
    "OpenLoop",
    "PromptMix",
    "RequestRecord",
    "Slo",
    "Target",
    "Trace",
    "bench_server",
    "read_trace",
    "write_html",
]
