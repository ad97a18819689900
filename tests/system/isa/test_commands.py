"""`webnn-vk shader … --chip` and `python -m webnn_vk.codegen inspect` on RADV's null device."""

from __future__ import annotations

import json
import re

import pytest
from onnx import TensorProto, helper

import webnn_vk.codegen.isa
from tests.support.gpu_shaders import needs_compiler
from webnn_vk.codegen import __main__ as generator
from webnn_vk.codegen.isa import IsaError, Module, chip_profile, compile_for
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.tools import cli

CHIP = "NAVI21"
MATMUL = ("shader", "operator", "matmul", "--shape", "a=256,256", "--shape", "b=256,256")
# Sums as many numbers as constant 3 says.
SUM = """#version 450
layout(local_size_x = 64) in;
layout(constant_id = 3) const uint COUNT = 4;
layout(push_constant) uniform Size { uint count; };
layout(binding = 0) readonly buffer Source { float x[]; };
layout(binding = 1) writeonly buffer Target { float y[]; };
void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i >= count) return;
    float sum = 0.0;
    for (uint n = 0; n < COUNT; n++) sum += x[i * COUNT + n];
    y[i] = sum;
}
"""


@pytest.fixture
def command(capsys, radv):
    """Runs a command and returns its output. The test fails if the command fails."""

    def run(*words):
        status = cli.main([str(word) for word in words])
        out, err = capsys.readouterr()
        assert (status, err) == (0, "")
        return out

    return run


def test_the_profile_is_the_chip_s(radv):
    profile = DeviceProfile.from_json(chip_profile(CHIP))
    assert CHIP in profile.name and {"float16_arithmetic", "subgroup_basic"} <= profile.features
    assert not profile.is_software


def test_an_operator(command):
    found = json.loads(command(*MATMUL, "--chip", CHIP, "--form", "isa", "--json"))
    # Tiles as the heuristics choose them for AMD's GPUs, not for this machine's device.
    assert found["template"] == "matmul_tiled.comp.j2" and found["chip"] == CHIP
    whole, *loops = found["parts"]
    # The driver counts its own instructions.
    assert int(whole["instr"]) == found["statistics"]["Instructions"]
    assert len(re.findall(r"^\s+[a-z]\w+ .*; [0-9a-f]{8}", found["isa"], re.MULTILINE)) == int(
        whole["instr"])
    constants = found["constants"]
    tile = constants["TM"] * constants["TN"] * constants["BK"]
    assert tile in [int(loop["FMAs a lane"]) for loop in loops]
    assert found["statistics"]["VGPRs"] > constants["TM"] * constants["TN"]
    shown = command(*MATMUL, "--chip", CHIP)
    assert re.search(rf"^ +{found['statistics']['VGPRs']} vector registers$", shown, re.MULTILINE)
    assert re.search(rf"^loop BB\d+ .* {tile} +\d+%$", shown, re.MULTILINE)
    assert re.search(rf"^TM +{constants['TM']}$", shown, re.MULTILINE)


@pytest.mark.explore
def test_chips_differ(command):
    isa = {
        chip: command(*MATMUL, "--chip", chip, "--form", "isa") for chip in (CHIP, "GFX1100")
    }
    assert "ds_load_b128" in isa["GFX1100"] and "ds_load_b128" not in isa[CHIP]
    assert "ds_read_b128" in isa[CHIP]


def test_the_kernels_of_a_model(command, tmp_path):
    ports = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 64])] for name in ("x", "y")
    ]
    node = helper.make_node
    nodes = [node("MatMul", ["x", "x"], ["t"]), node("Softmax", ["t"], ["y"])]
    graph = helper.make_graph(nodes, "g", *ports)
    model = tmp_path / "model.onnx"
    opset = [helper.make_opsetid("", 21)]
    model.write_bytes(
        helper.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString()
    )
    kernels = json.loads(command("shader", "list", model, "--chip", CHIP, "--json"))
    templates = [kernel["template"].partition(".")[0] for kernel in kernels]
    assert templates[0].startswith("matmul") and templates[-1] == "softmax"
    listed = command("shader", "list", model, "--chip", CHIP).splitlines()
    assert listed[0].split()[:8] == ["#", "operators", "kernel", "VGPR", "SGPR", "LDS", "waves",
                                     "instr"]
    for line, kernel in zip(listed[1:], kernels, strict=True):
        assert line.split()[0] == str(kernel["number"])
        assert str(kernel["statistics"]["VGPRs"]) in line.split()
        assert "0+0" in line.split()
    last = command("shader", "show", model, "--step", len(kernels) - 1, "--chip", CHIP)
    assert "softmax.comp.j2" in last and "vector registers" in last


def test_a_shader_of_ones_own(radv, tmp_path, capsys):
    needs_compiler()
    (tmp_path / "sum.comp").write_text(SUM)

    def inspect(*more):
        status = generator.main(["inspect", str(tmp_path / "sum.comp"), "--chip", CHIP, *more])
        return status, *capsys.readouterr()

    status, out, err = inspect("--isa", "-o", str(tmp_path / "sum.s"))
    assert (status, err) == (0, "") and "s_endpgm" in out
    assert (tmp_path / "sum.s").read_text().strip() in out
    # Four loads of one number each; one store.
    assert re.search(r"^all .* 4×1 ", out, re.MULTILINE)
    _, larger, _ = inspect("--set", "3=1000")
    # Too many to unroll: now there is a loop.
    assert "loop BB" in larger and "loop BB" not in out
    status, out, err = inspect("--set", "COUNT=3")
    assert (status, out) == (2, "") and "the specialisation constants 3, by id" in err
    template = tmp_path / "double.comp.j2"
    template.write_text(
        '{% include "lib/prelude.glsl.j2" %}\nvoid main() {\n  uint i = invocation_index();\n'
        "  if (i < P.count) store_y(i, 2.0 * load_y(i));\n}\n"
    )
    status = cli.main(["shader", "inspect", str(template), "--buffer", "y:float32:rw", "--param",
                       "count", "--chip", CHIP])
    out, err = capsys.readouterr()
    assert (status, err) == (0, "") and out.startswith("double.comp.j2 on NAVI21\n")
    status = cli.main(["shader", "inspect", str(template), "--buffer", "y:float32:rw", "--param",
                       "count", "--chip", CHIP, "--json", "--isa"])
    told = json.loads(capsys.readouterr().out)
    assert (status, told["shader"], told["chip"]) == (0, "double.comp.j2", CHIP)
    assert told["statistics"]["VGPRs"] > 0 and "s_endpgm" in told["isa"]


def test_errors_are_one_line(radv, capsys):
    assert cli.main([*MATMUL, "--chip", "NAVI99"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and len(err.splitlines()) == 1
    assert "NAVI99 can't be compiled for" in err and "NAVI21" in err


def test_a_driver_that_crashes_is_told(radv):
    (result,) = compile_for(CHIP, [Module("words", b"\x03\x02\x23\x07" + bytes(16), 0)])
    assert result.state == "crash"
    assert result.error.startswith("compiling for NAVI21: the driver ended its process (status -")


def test_without_the_driver(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(webnn_vk.codegen.isa, "_MANIFESTS", (f"{tmp_path}/radeon_icd.*.json",))
    with pytest.raises(IsaError, match="apt install mesa-vulkan-drivers"):
        chip_profile(CHIP)
    needs_compiler()
    for words in (MATMUL, ("shader", "inspect", "scatter_clear", "--buffer", "slots:uint32:w:4",
                           "--param", "count")):
        assert cli.main([*words, "--chip", CHIP]) == 1
        out, err = capsys.readouterr()
        assert (out, err) == (
            "", "webnn-vk: RADV is not installed (Debian/Ubuntu: apt install mesa-vulkan-drivers)\n"
        )
