"""Reports of benchmarks/roofline, startup, step and neighbours, on made-up numbers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks.kernels import Result, Run, plot
from benchmarks.kernels import report as report_kernels
from benchmarks.kv_read import KvRead, decode_step, kv_read_bytes, report_kv
from benchmarks.neighbours import Neighbours
from benchmarks.neighbours import report as report_neighbours
from benchmarks.report import table, write_json
from benchmarks.roofline import Roof, intensity
from benchmarks.roofline import report as report_roofs
from benchmarks.shapes import BITS, SHAPES
from benchmarks.startup import Launch, Startup, launch, llama_command
from benchmarks.startup import report as report_startup
from benchmarks.step import Phase, by_kind, report_rows
from benchmarks.step import report as report_phases

from octavo.models.config import ModelConfig, RopeConfig


def _config(**changes: object) -> ModelConfig:
    sizes = (100, 64, 4, 4, 2, 16, 128, 1e-5, 8192)
    return ModelConfig("llama", "tiny", *sizes, RopeConfig(1e4, 16), **changes)  # type: ignore


def test_table_pads_and_aligns():
    lines = table(["name", "a"], [["x", "1"], ["long name", "10"]]).splitlines()
    assert lines[1] == "| :-------- | -: |"
    assert lines[2:] == ["| x         |  1 |", "| long name | 10 |"]


def test_json_has_facts_results_and_the_machine(tmp_path: Path):
    path = tmp_path / "new" / "x.json"
    write_json(path, [1.5], model="m")
    report = json.loads(path.read_text())
    assert report["results"] == [1.5]
    assert report["model"] == "m"
    assert report["machine"]["isa"]


def test_roofs_are_columns_and_a_missing_peak_is_named():
    text = report_roofs([Roof(2, 30e9, 20e9, 800e9, 0.0, 200e9, 300e-9, 400e-9, 900e-9)])
    assert "| read, 2 MB pages, GB/s | 30.0 |" in text
    assert "| bf16 peak, GFLOP/s     | none |" in text
    assert "| barrier, ns            |  300 |" in text


def test_roofs_name_the_bits_that_are_slower():
    roof = Roof(1, 30e9, 20e9, 350e9, 0.0, 118e9, 2e-9, 1e-8, 3e-9, {5: 351e9, 6: 328e9, 8: 175e9})
    text = report_roofs([roof])
    assert "| int8 by 6 bits, GOP/s  |  328 |" in text
    assert "| int8 by 8 bits, GOP/s  |  175 |" in text
    assert "5 bits" not in text


def test_intensity_counts_two_operations_a_weight_and_row():
    assert intensity(9) == 32.0  # 18 operations for each 4.5 / 8 bytes


def _kernel_run() -> Run:
    shapes = [s for s in SHAPES if s.model == "qwen"]
    results = [Result(*s, m, 1.0, 2.0, 3.0, 0.654, 0.321) for s in shapes for m in (1, 512)]
    return Run("avx2", 2, {"4": 700e9, "6": 656e9}, 32e9, results)


def test_kernels_are_lines_of_shapes_with_both_shares():
    text = report_kernels(_kernel_run())
    assert text.startswith("avx2, 2 threads. int8 peak, GOP/s: 4 bits 700, 6 bits 656; read 32.0")
    assert "| qwen down, Q6_K, 1536 x 8960     | 65 / 32 | 65 / 32 |" in text
    assert len(text.strip().splitlines()) == 2 + 2 + 7


def test_kernels_plot_needs_not_every_type(tmp_path: Path):
    plot(tmp_path / "kernels.svg", [_kernel_run(), _kernel_run()], "made up")
    assert "avx2" in (tmp_path / "kernels.svg").read_text()
    assert {"Q4_1": 4, "Q5_0": 5, "Q6_K": 6, "Q8_0": 8}.items() <= BITS.items()


def test_startup_budget_and_spread():
    result = Startup("m", 1_000_000_000, 10_000_000)
    result.octavo = [Launch(s, s + 0.1, int(s * 1e9)) for s in (0.5, 0.3, 0.4)]
    assert result.budget_bytes == 1_211_000_000
    assert result.peak_bytes == 500_000_000
    assert "0.40 (0.30-0.50)" in report_startup([result])
    assert result.as_dict()["budget_bytes"] == result.budget_bytes


def test_launch_times_a_process_and_says_why_one_failed():
    code = "import sys; print('x', flush=True); sys.stdin.read()"
    done = launch([sys.executable, "-c", "print('x')"])
    assert 0 < done.first_s <= done.whole_s
    assert done.peak_bytes > 1_000_000
    with pytest.raises(SystemExit, match="out of luck"):
        launch([sys.executable, "-c", f"{code}; sys.exit('out of luck')"])


def test_llama_programs_are_looked_for_in_order(tmp_path: Path):
    with pytest.raises(SystemExit, match="no llama-completion and no llama-bench"):
        llama_command(Path("m"), 2, tmp_path)
    (tmp_path / "llama-bench").touch()
    assert llama_command(Path("m"), 2, tmp_path)[0].endswith("llama-bench")
    (tmp_path / "llama-completion").touch()
    assert llama_command(Path("m"), 2, tmp_path)[0].endswith("llama-completion")


def test_regions_are_summed_by_kind_and_the_last_product_is_the_head():
    regions = [("norm", 2.0), ("linear", 4.0), ("linear", 6.0), ("select", 1.0), ("linear", 8.0)]
    assert by_kind(regions, 2) == {
        "q, k, v, o, down": 5.0,
        "LM head": 4.0,
        "norm": 1.0,
        "select": 0.5,
    }
    assert by_kind([("embed", 1.0)], 1) == {"embed": 1.0}


def test_a_step_is_regions_sampling_and_python():
    phase = Phase("decode x1", 10, 0.010, 0.009, {"gate, up": 0.006, "norm": 0.002})
    assert phase.around_s == pytest.approx(0.001)
    assert phase.python_s == pytest.approx(0.001)
    text = report_phases([phase])
    assert "| gate, up | 6.00 ms  60 % |" in text
    assert "| Python   | 1.00 ms  10 % |" in text
    assert text.index("gate, up") < text.index("norm")


def test_rows_relative_to_one():
    assert "| M = 2  |     2.50 ms |     1.25 |" in report_rows([0.002, 0.0025])


def test_kv_bytes_stop_at_the_window():
    assert kv_read_bytes(_config(), 400, 1000) == 400_000
    sliding = _config(sliding_window=100, sliding_layers=(True, True, True, False))
    assert kv_read_bytes(sliding, 400, 1000) == 3 * 100 * 100 + 100 * 1000


def test_kv_read_share():
    assert "| 8 x 4096  | 10.00 ms |    20.0 |          80 % |" in report_kv(
        [KvRead(8, 4096, 200_000_000, 0.01, 25e9)]
    )


def test_decode_step_gives_every_stream_the_blocks_that_the_cache_would():
    step = decode_step(3, 70, 32, num_blocks=48)
    assert step.block_table.tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    np.testing.assert_array_equal(step.slots, step.block_table[:, 2] * 32 + 5)
    assert step.positions.tolist() == [69] * 3


def test_neighbours_ratio_is_the_median_of_repetitions():
    result = Neighbours([100.0, 200.0, 100.0], [(50.0, 50.0), (90.0, 90.0), (40.0, 40.0)])
    assert result.ratio == pytest.approx(0.9)
    assert "50 + 50" in report_neighbours(result)
