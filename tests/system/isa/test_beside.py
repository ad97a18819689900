"""`python -m bench isa --captured`: captured kernels are judged by the same formula as ours."""

from __future__ import annotations

import json

import pytest

from bench.isa import beside, graphs, workloads
from webnn_vk.codegen.isa import FAMILIES, chip_profile
from webnn_vk.codegen.store import ShaderStore
from webnn_vk.compiler.program import Target, compile_program
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.tools import ToolError

pytestmark = pytest.mark.sample(0.3)
CHIP = "NAVI21"


def capture(folder, name):
    """The files that a capturing driver would write for our own program."""
    folder.mkdir(parents=True)
    profile = DeviceProfile.from_json(chip_profile(CHIP))
    graph = graphs.described(workloads.WORKLOADS[name])
    lines = ["=== run"]
    steps = workloads.steps(compile_program(graph, Target(profile))[0])
    modules = ShaderStore().get([step.spec for step in steps])
    for number, (step, module) in enumerate(zip(steps, modules, strict=True)):
        (folder / f"pipe_{number}.spv").write_bytes(module)
        constants = "".join(f" {i}={value.hex()}" for i, value in step.constants)
        lines.append(f"pipe {number} entry main{constants}")
        lines.append("dispatch {} {} {} {}".format(number, *step.groups))
    (folder / "log.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_our_own_kernels_captured_have_our_bound(radv, tmp_path, capsys):
    for name in ("matmul_512", "softmax_12x128x128"):
        capture(tmp_path / "mirror" / name, name)
    empty = tmp_path / "mirror" / "add_relu_chain_1m"
    empty.mkdir()
    (empty / "log.txt").write_text("=== run\n", encoding="utf-8")
    beside.main([CHIP], tmp_path, tmp_path / "table.json")
    rows = json.loads((tmp_path / "table.json").read_text(encoding="utf-8"))[CHIP]
    by_name = {(row["workload"], row["who"]): row for row in rows}
    assert len(rows) == len(by_name) == 6
    for name in ("matmul_512", "softmax_12x128x128"):
        ours, mirror = by_name[name, "webnn_vk"], by_name[name, "mirror"]
        assert ours["error"] is mirror["error"] is None and ours["bound"]["all"] > 0
        assert mirror["bound"] == pytest.approx(ours["bound"])
        assert mirror["dispatches"] == ours["dispatches"]
    product = by_name["matmul_512", "webnn_vk"]
    assert sum(d["multiply_adds"] for d in product["dispatches"]) == 512**3
    assert product["bound"]["products"] == product["bound"]["all"]
    assert "nothing was dispatched" in by_name["add_relu_chain_1m", "mirror"]["error"]
    shown = capsys.readouterr().out
    assert "? mirror, add_relu_chain_1m: nothing was dispatched" in shown
    assert shown.count("1.00×") == 2


#: Lower bounds, in µs, of the fastest kernels of ncnn, ONNX Runtime and IREE as they were captured
#: on lavapipe.
CAPTURED = {
    "NAVI21": {
        "conv3x3_56x56_64_64": 4.48, "conv1x1_28x28_128_512": 5.19, "mobilenet_v2_224": 43.33,
        "resnet50_v1_224": 332.57,
    },
    "GFX1100": {
        "conv3x3_56x56_64_64": 3.44, "conv1x1_28x28_128_512": 4.42, "mobilenet_v2_224": 33.27,
        "resnet50_v1_224": 249.83,
    },
    "VEGA10": {
        "conv3x3_56x56_64_64": 12.84, "conv1x1_28x28_128_512": 10.46, "mobilenet_v2_224": 80.40,
        "resnet50_v1_224": 709.96,
    },
}


@pytest.mark.parametrize("chip", CAPTURED)
def test_convolutions_are_ahead_of_what_was_captured(chip, radv, tmp_path):
    for name in CAPTURED[chip]:
        folder = tmp_path / "nobody" / name
        folder.mkdir(parents=True)
        (folder / "log.txt").write_text("=== run\n", encoding="utf-8")
    rows = beside.rows_for(chip, tmp_path)
    ours = {row["workload"]: row["bound"]["all"] for row in rows if row["bound"]}
    assert ours.keys() == CAPTURED[chip].keys()
    behind = {name: ours[name] for name, best in CAPTURED[chip].items() if ours[name] > best}
    assert not behind


def test_what_can_not_be_judged_is_an_error(radv, tmp_path):
    with pytest.raises(ToolError, match="no captures"):
        beside.rows_for(CHIP, tmp_path)
    with pytest.raises(ToolError, match="NAVI99"):
        beside.rows_for("NAVI99", tmp_path)


#: Lower bounds, in µs, of the fastest kernels of IREE, ncnn and ONNX Runtime as captured on
#: lavapipe in November 2026, by the same formula.
PEERS = {
    "layernorm_128x768": {"NAVI21": 0.1024, "VEGA10": 0.2380, "GFX1100": 0.0768},
    "softmax_12x128x128": {"NAVI21": 0.8280, "VEGA10": 1.5723, "GFX1100": 0.6210},
    "add_relu_chain_1m": {"NAVI21": 0.8647, "VEGA10": 1.9871, "GFX1100": 0.6656},
}


@pytest.mark.parametrize("chip", FAMILIES)
def test_rows_and_chains_are_level_with_the_peers(chip, radv, tmp_path):
    for name in PEERS:
        folder = tmp_path / "nobody" / name
        folder.mkdir(parents=True)
        (folder / "log.txt").write_text("=== run\n", encoding="utf-8")
    found = {row["workload"]: row for row in beside.rows_for(chip, tmp_path) if row["bound"]}
    assert found.keys() == PEERS.keys() and {row["who"] for row in found.values()} == {"webnn_vk"}
    for name, peers in PEERS.items():
        assert found[name]["bound"]["all"] <= peers[chip], name
    # Rows of 768 are summed without shared memory, and two rows share their scale.
    (norm,) = found["layernorm_128x768"]["dispatches"]
    assert norm["once"]["lds"] == 0 and norm["groups"] == [64, 1, 1]
