"""GET /metrics: names, values, both sets of names, and what promtool says."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from octavo.serving import ServerOptions
from octavo.serving.metric_names import REQUEST_HISTOGRAMS
from tests.serving.live_server import LiveServer, live_server

VLLM_NAMES = {  # of vLLM 0.33, those that mean something here
    *("num_requests_running", "num_requests_waiting", "num_requests_waiting_by_reason"),
    *("kv_cache_usage_perc", "prefix_cache_queries_total", "prefix_cache_hits_total"),
    *(
        "prompt_tokens_cached_total",
        "num_preemptions_total",
        "prompt_tokens_total",
        "generation_tokens_total",
    ),
    *("request_success_total", "admission_rejections_total", "cache_config_info"),
    *("time_to_first_token_seconds", "inter_token_latency_seconds"),
    *("request_time_per_output_token_seconds", "e2e_request_latency_seconds"),
    *("request_queue_time_seconds", "request_inference_time_seconds"),
    *("request_prefill_time_seconds", "request_decode_time_seconds"),
    *("request_prompt_tokens", "request_generation_tokens", "request_params_n"),
    *("request_max_num_generation_tokens", "request_params_max_tokens"),
    *("request_prefill_kv_computed_tokens", "iteration_tokens_total", "request_num_preemptions"),
}
HTTP_NAMES = {
    *("http_requests_total", "http_request_duration_seconds"),
    *("http_request_duration_highr_seconds", "http_request_size_bytes"),
    "http_response_size_bytes",
}


@pytest.fixture(scope="module")
def as_vllm(tiny_model: Path) -> Iterator[LiveServer]:
    """A server that speaks vLLM's names."""
    options = ServerOptions(served_model_names=("tiny",), metrics_compat="vllm")
    with live_server(tiny_model, server=options) as live:
        yield live


def scrape(server: LiveServer) -> str:
    answer = server.http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return answer.text


def typed_names(text: str) -> set[str]:
    """The names that # TYPE lines show."""
    return {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}


@pytest.mark.parametrize("compat", ["octavo", "vllm"])
def test_vllms_names_are_there_under_either_prefix(
    compat: str, server: LiveServer, as_vllm: LiveServer
) -> None:
    chosen = as_vllm if compat == "vllm" else server
    chosen.complete(max_tokens=2)
    text = scrape(chosen)
    http = "" if compat == "vllm" else "octavo:"
    wanted = {f"{compat}:{name}" for name in VLLM_NAMES} | {http + name for name in HTTP_NAMES}
    assert wanted <= typed_names(text)
    families = list(text_string_to_metric_families(text))
    assert all(family.documentation for family in families)
    for family in families:
        if family.name.startswith("vllm:"):
            assert all(sample.labels["engine"] == "0" for sample in family.samples)
    assert "octavo:kv_blocks_free" in typed_names(text)  # what only Octavo has keeps its name


def test_names_are_the_same_for_a_scraper_that_asks_for_open_metrics(server: LiveServer) -> None:
    """What Prometheus 3 sends; see the route for why it gets the older format."""
    accept = (
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
        "application/openmetrics-text;version=0.0.1;q=0.5,"
        "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3"
    )
    answer = server.http.get("/metrics", headers={"Accept": accept})
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert typed_names(answer.text) == typed_names(scrape(server))
    samples = {s.name for f in text_string_to_metric_families(answer.text) for s in f.samples}
    assert "octavo:http_request_duration_seconds_bucket" in samples
    assert not any(sample.startswith(("octavo_http", "octavo_request")) for sample in samples)


def test_a_request_is_in_every_histogram_once(server: LiveServer) -> None:
    server.wait_idle()
    before = server.metrics()
    assert server.complete("hello", max_tokens=5, n=2, temperature=0).status_code == 200
    after = server.metrics()

    def grown(name: str) -> float:
        return after[f"octavo:{name}"] - before.get(f"octavo:{name}", 0.0)

    for key, name in REQUEST_HISTOGRAMS.items():
        assert grown(f"{name.name}_count") == (8 if key == "itl" else 1), name
    assert grown("request_prompt_tokens_sum") == 5
    assert grown("request_generation_tokens_sum") == 10
    assert grown("request_max_num_generation_tokens_sum") == 5
    assert grown("request_params_max_tokens_sum") == 5
    assert grown("request_params_n_sum") == 2
    assert grown("iteration_tokens_total_count") == grown("engine_steps_total") == 5
    assert grown("iteration_tokens_total_sum") == 5 + 4 * 2
    parts = grown("request_prefill_time_seconds_sum") + grown("request_decode_time_seconds_sum")
    assert grown("request_inference_time_seconds_sum") == pytest.approx(parts, abs=1e-9)
    whole = grown("e2e_request_latency_seconds_sum")
    assert parts + grown("request_queue_time_seconds_sum") <= whole


def test_cached_prompt_tokens_are_not_counted_as_computed(server: LiveServer) -> None:
    prompt = "the same long beginning, " * 20
    server.complete(prompt, max_tokens=1)
    before = server.metrics()
    server.complete(prompt, max_tokens=1)
    after = server.metrics()
    computed = "octavo:request_prefill_kv_computed_tokens_sum"
    hits = "octavo:prefix_cache_hits_total"
    assert after[hits] > before[hits]
    computed_now = after[computed] - before[computed]
    assert computed_now + after[hits] - before[hits] == len(prompt)
    assert 0 < after["octavo:prefix_cache_hit_ratio"] < 1


def test_refusals_are_counted_by_reason(server: LiveServer) -> None:
    server.complete("x" * 5000, max_tokens=1)
    text = scrape(server)
    labels = '{model_name="tiny",reason="prompt_too_long"}'
    assert f"octavo:admission_rejections_total{labels}" in text


def test_refusals_while_loading_are_counted(tiny_model: Path) -> None:
    with live_server(tiny_model, wait=False) as server:
        refused = server.complete(max_tokens=1)
        server.wait_status(200)
        count = server.metrics()["octavo:admission_rejections_total"]
    assert (refused.status_code, count) == (503, 1)


def test_a_failure_on_the_way_is_no_refusal(slow_server: LiveServer) -> None:
    answer = slow_server.complete(max_tokens=2000, ignore_eos=True, deadline=0.3)
    assert answer.status_code == 504
    values = slow_server.metrics()
    assert values["octavo:request_failures_total"] >= 1
    assert "octavo:admission_rejections_total" not in values


def test_buckets_rise_and_end_with_all(server: LiveServer) -> None:
    server.complete(max_tokens=3)
    for family in text_string_to_metric_families(scrape(server)):
        series: dict[str, list[tuple[float, float]]] = {}
        counts: dict[str, float] = {}
        for sample in family.samples:
            others = str({k: v for k, v in sample.labels.items() if k != "le"})
            if sample.name.endswith("_bucket"):
                place = (float(sample.labels["le"]), sample.value)
                series.setdefault(others, []).append(place)
            elif sample.name.endswith("_count"):
                counts[others] = sample.value
        for key, buckets in series.items():
            assert buckets == sorted(buckets)
            assert [b for _, b in buckets] == sorted(b for _, b in buckets)
            assert buckets[-1] == (float("inf"), counts[key])


def test_the_processes_are_shown(server: LiveServer) -> None:
    names = server.metrics()
    assert names["process_resident_memory_bytes"] > 1e7
    assert names["octavo_engine_process_resident_memory_bytes"] > 1e7


# What promtool's linter says that names of vLLM's, or of Prometheus's own client, must not heed.
LINTED = (
    "metric names should not contain ':'",
    'non-counter metrics should not have "_total" suffix',  # iteration_tokens_total
    "non-histogram and non-summary metrics should not have",
    "metric name should not include type",
)


@pytest.mark.parametrize("compat", ["octavo", "vllm"])
def test_promtool_finds_nothing_new(compat: str, server: LiveServer, as_vllm: LiveServer) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    chosen = as_vllm if compat == "vllm" else server
    chosen.complete(max_tokens=2)
    check = subprocess.run(
        [promtool, "check", "metrics"], input=scrape(chosen), capture_output=True, text=True
    )
    assert check.returncode in (0, 3), check.stderr  # 3: it reads, with remarks
    remarks = (check.stdout + check.stderr).splitlines()
    assert [line for line in remarks if not any(known in line for known in LINTED)] == []
