"""The committed gRPC code is what scripts/protos.py writes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.filterwarnings("ignore:pkg_resources is deprecated")
def test_generated_code_is_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("grpc_tools", reason="grpcio-tools is not installed")
    spec = importlib.util.spec_from_file_location("protos", ROOT / "scripts" / "protos.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "protos", module)
    spec.loader.exec_module(module)
    module.generate(tmp_path)
    made = {p.name: p.read_text() for p in (tmp_path / "octavo" / "rpc").iterdir()}
    kept = {p.name: p.read_text() for p in (ROOT / "src/octavo/rpc").glob("*_pb2*")}
    assert made == kept, "run: python scripts/protos.py"
