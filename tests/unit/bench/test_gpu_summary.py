"""The summary of a run on a GPU: rows as lines, and what makes the run fail."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bench.gpu import summary
from bench.gpu.measured_graph import relative_error
from bench.gpu.stages.device import circle
from tests.support.paths import ROOT

RIGHT = {"kind": "right", "stage": "right", "what": "gemm", "ok": True}
STAGE = {"stage": "right", "note": "", "seconds": 1.0, "expected": 1, "found": 1}


@pytest.mark.parametrize(("rows", "stages", "complete"), [
    ([RIGHT], [STAGE], True),
    ([RIGHT, {**RIGHT, "ok": False}], [STAGE], False),
    ([RIGHT], [{**STAGE, "expected": 2}], False),
    ([RIGHT], [{**STAGE, "expected": None, "found": 0}], False),
    ([RIGHT], [{**STAGE, "note": "ran out of time"}], False),
    ([], [], False),
])
def test_whether_a_run_is_right_and_complete(rows, stages, complete, capsys):
    assert summary.print_summary(rows, stages) == complete
    assert "right: " in capsys.readouterr().out


def test_rows_of_a_stage_that_was_cut_off(tmp_path):
    part = tmp_path / "right"
    part.write_text('{"kind": "expected", "count": 3}\n{"kind": "found"}\n{"kind": "rig')
    rows = summary.read_rows({"right": part, "later": tmp_path / "later"})
    assert [r["kind"] for r in rows] == ["expected", "found"]
    assert summary.result_of("right", rows, 1.23, "ran out of time") == {
        "stage": "right", "note": "ran out of time", "seconds": 1.2, "expected": 3, "found": 1}


def test_shares_of_the_bandwidth():
    rows = [{"kind": "ceiling", "what": "bytes copied, read and written", "rate": 2.4e12},
            {"kind": "kernel", "gigabytes": 1200}, {"kind": "kernel", "gigabytes": None}]
    summary.add_shares(rows, "NVIDIA H200")
    assert rows[1]["share_of_sheet"] == 0.25 and rows[1]["share_of_copy"] == 0.5
    assert "share_of_sheet" not in rows[2]


def test_lines(capsys):
    measured = {"dtype": "float16", "device": 6e-5, "queued": 7e-5, "clocks": [345, 1980, 1980]}
    rows = [
        {"kind": "product", "way": "default", "m": 1, "n": 2, "k": 3, "transposed": True,
         "chain": 6, "torch": 3e-5, "ratio": 0.5, "torch_graph": True, **measured},
        {"kind": "model", "model": "BERT", **measured},
        {"kind": "decoder", "dtype": "int4", "activations": "float16", "valid": 512,
         "token_s": 100.0, "prompt_tokens_s": 1000.0},
        {"kind": "latency", "what": "dependent load, 16 KiB", "seconds": 3e-8},
        {"kind": "tuned", "stage": "x", "size": [1, 2, 3], "usual_seconds": 2, "seconds": 1},
    ]
    summary.print_summary(rows, [])
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[:5] == [
        "float16 default 1x2x3 transposed 10.0 us torch 5.0 ratio 0.50 1980 MHz",
        "float16 BERT 70.0 us 1980 MHz",
        "decoder ours int4, float16 512 tokens: 100.0 a second, prompt 1000.0 a second",
        "dependent load, 16 KiB 30.0 ns", "tuned [1, 2, 3] 2 -> 1 s"]


def test_results_that_are_saved_can_be_read_again(tmp_path):
    summary.save(tmp_path / "x.json", {"commit": "c"}, [STAGE], [RIGHT, {"kind": "found"}])
    found = json.loads((tmp_path / "x.json").read_text())
    assert found == {"commit": "c", "stages": [STAGE], "rows": [RIGHT]}


def test_the_stored_runs_have_their_card_and_commit():
    files = sorted((ROOT / "bench" / "gpu").glob("*.json"))
    assert files
    for file in files:
        run = json.loads(file.read_text())
        assert len(run["commit"]) == 40 and run["date"] in file.name
        assert run["card"] and run["driver"] and len(run["rows"]) > 100


def test_the_circle_of_a_pointer_chase_goes_through_all_places():
    following, at, seen = circle(64, 4), 0, set()
    for _ in range(16):
        seen.add(at)
        at = int(following[at])
    assert at == 0 and seen == {*range(0, 64, 4)}


@pytest.mark.parametrize(("found", "wanted", "error"), [
    ([1, 2], [1, 2], 0.0), ([1, 3], [1, 4], 0.25), ([0.5], [0], 0.5), ([np.nan], [1], np.inf),
])
def test_relative_errors(found, wanted, error):
    assert relative_error(np.array(found), np.array(wanted)) == error
