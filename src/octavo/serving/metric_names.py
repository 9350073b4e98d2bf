"""What /metrics shows: names, helps and buckets. Those that vLLM has too are vLLM's, so that
dashboards made for one work with the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Compat = Literal["octavo", "vllm"]

LATENCY_S = (
    *(0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60),
    *(120, 240, 480, 960, 1920, 7680),
)
TTFT_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5),
    *(0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560),
)
TOKEN_S = (  # the first three are not vLLM's: small models need less than 10 ms
    *(0.001, 0.0025, 0.005),
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1, 2.5, 5, 7.5, 10, 20, 40, 80),
)
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000)
SAMPLES = (1, 2, 5, 10, 20)
PREEMPTIONS = (1, 2, 3, 4, 5, 10, 20)
HTTP_S = (0.1, 0.5, 1)
HTTP_HIGHR_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5),
    *(7.5, 10, 30, 60),
)


@dataclass(frozen=True)
class Name:
    """A family of samples. in_vllm: vLLM has it under the same name."""

    name: str
    help: str
    in_vllm: bool = True
    buckets: tuple[float, ...] = ()

    def full(self, compat: Compat) -> str:
        """With the prefix of the one who is asked."""
        return f"{'vllm' if compat == 'vllm' and self.in_vllm else 'octavo'}:{self.name}"


REQUEST_HISTOGRAMS = {
    "ttft": Name("time_to_first_token_seconds", "Arrival to first token.", buckets=TTFT_S),
    "itl": Name("inter_token_latency_seconds", "Between two tokens of a sample.", buckets=TOKEN_S),
    "tpot": Name(
        "request_time_per_output_token_seconds",
        "A request's mean time per output token after the first.",
        buckets=TOKEN_S,
    ),
    "e2e": Name("e2e_request_latency_seconds", "Arrival to end.", buckets=LATENCY_S),
    "queue": Name(
        "request_queue_time_seconds", "Arrival to first being scheduled.", buckets=LATENCY_S
    ),
    "inference": Name(
        "request_inference_time_seconds", "First being scheduled to end.", buckets=LATENCY_S
    ),
    "prefill": Name(
        "request_prefill_time_seconds",
        "First being scheduled to first token.",
        buckets=LATENCY_S,
    ),
    "decode": Name("request_decode_time_seconds", "First token to end.", buckets=LATENCY_S),
    "prompt": Name("request_prompt_tokens", "Prompt tokens of a request.", buckets=TOKENS),
    "output": Name(
        "request_generation_tokens", "Tokens generated for a request, all samples.", buckets=TOKENS
    ),
    "max_output": Name(
        "request_max_num_generation_tokens",
        "Tokens of a request's longest sample.",
        buckets=TOKENS,
    ),
    "max_tokens": Name(
        "request_params_max_tokens", "The max_tokens that requests ask for.", buckets=TOKENS
    ),
    "samples": Name("request_params_n", "Samples that requests ask for.", buckets=SAMPLES),
    "computed": Name(
        "request_prefill_kv_computed_tokens",
        "Prompt tokens of a request that the prefix cache did not have.",
        buckets=TOKENS,
    ),
    "preemptions": Name(
        "request_num_preemptions", "Times a request was preempted.", buckets=PREEMPTIONS
    ),
}
"""By their attribute in Metrics."""

ENGINE_HISTOGRAMS = {
    "step_tokens": Name("iteration_tokens_total", "Tokens computed in a step."),
    "step_s": Name("engine_step_seconds", "Duration of a step.", in_vllm=False),
}
"""By their attribute in EngineStats."""

GAUGES = {
    "num_running": Name("num_requests_running", "Sequences in the batch."),
    "num_waiting": Name("num_requests_waiting", "Sequences in the queue."),
    "kv_usage": Name("kv_cache_usage_perc", "Share of the KV cache in use, 0 to 1."),
    "num_blocks": Name("kv_blocks", "KV blocks in all.", False),
    "num_used_blocks": Name("kv_blocks_used", "KV blocks held by requests.", False),
    "num_free_blocks": Name(
        "kv_blocks_free", "KV blocks that can be taken, cached ones included.", False
    ),
    "num_cached_blocks": Name(
        "kv_blocks_cached", "Free KV blocks whose prefix can still be found.", False
    ),
    "prefix_cache_hit_rate": Name(
        "prefix_cache_hit_ratio", "Hits over queries of the prefix cache since start.", False
    ),
    "last_step_s": Name("last_step_seconds", "Duration of the last step.", False),
    "last_step_tokens": Name("last_step_tokens", "Tokens computed in the last step.", False),
}
"""By their attribute in EngineStats."""

COUNTERS = {
    "prefix_cache_queries": Name(
        "prefix_cache_queries", "Prompt tokens looked up in the prefix cache."
    ),
    "prefix_cache_hits": Name("prefix_cache_hits", "Prompt tokens found in the prefix cache."),
    "prompt_tokens_cached": Name(
        "prompt_tokens_cached", "Prompt tokens that did not have to be computed."
    ),
    "num_preemptions": Name(
        "num_preemptions", "Sequences set back to the queue for lack of blocks."
    ),
    "prompt_tokens": Name("prompt_tokens", "Prompt tokens taken in."),
    "generation_tokens": Name("generation_tokens", "Tokens generated."),
    "num_steps": Name("engine_steps", "Steps run.", False),
    "num_step_errors": Name("engine_step_errors", "Steps that failed.", False),
}
"""By their attribute in EngineStats."""

WAITING = Name("num_requests_waiting_by_reason", "Sequences in the queue by why they wait.")
CACHE_INFO = Name("cache_config_info", "How the KV cache is set up; always 1.")
SUCCESS = Name("request_success", "Finished samples by reason.")
REJECTIONS = Name("admission_rejections", "Requests refused before they ran.")
FAILURES = Name("request_failures", "Requests that failed after their first token.", False)
UP = Name("engine_up", "Whether the engine takes requests.", False)
RESTARTS = Name("engine_restarts", "Times the engine was started anew.", False)
CONNECTIONS = Name("http_connections", "Open connections.", False)
CUT = Name("http_connections_cut", "Connections ended by a limit on clients.", False)

HTTP_REQUESTS = Name("http_requests", "Answers by method, route and status class.")
HTTP_SECONDS = Name("http_request_duration_seconds", "From head to end of the answer.")
HTTP_HIGHR = Name("http_request_duration_highr_seconds", "The same for all routes, in detail.")
HTTP_IN = Name("http_request_size_bytes", "Bodies of requests.")
HTTP_OUT = Name("http_response_size_bytes", "Bodies of answers.")
