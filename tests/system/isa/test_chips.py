"""Kernels compiled by six makers' compilers for chips that are not in the machine."""

from __future__ import annotations

import importlib
import itertools
import json
import re
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import webnn_vk as webnn
from bench.chips import MODELS, PACK, judged
from bench.estimates import alternatives, compared
from bench.models import mobilenet_v2
from tests.support import chips, half_instructions, judges
from tests.support.glsl import compiled
from tests.support.gpu_shaders import needs_compiler
from tests.support.graphs import graph_input, graph_of
from tests.support.kernels import compile_spec
from tests.support.running import node_of, plan
from tests.support.selection import chance
from tests.support.summary import LINE
from webnn_vk import onnx
from webnn_vk.codegen import isa
from webnn_vk.codegen.isa import Module, chip_profile, compile_for
from webnn_vk.codegen.isa.chips import CHIPS, command, missing
from webnn_vk.compiler.ir import Emitter
from webnn_vk.compiler.kernels.fusion import fuse
from webnn_vk.compiler.kernels.heuristics import device_class
from webnn_vk.compiler.kernels.lower import kernelize
from webnn_vk.compiler.types.data_types import MLOperandDescriptor
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.tools import cli

VENDORS = {
    "NVK": 0x10DE, "ANV": 0x8086, "Turnip": 0x5143, "PanVK": 0x13B5, "RADV": 0x1002,
    "Honeykrisp": 0x10005,  # Mesa
}
FIELDS = {
    "chip", "kernel", "operators", "spills", "fills", "scratch", "registers", "occupancy", "cycles",
    "seconds", "state",
}


#: The newest chip of each maker; not Mali, whose driver runs in an emulated processor.
NEWEST = {
    chip.driver.name: name for name, chip in CHIPS.items() if chip.driver.architecture == "amd64"
}.values()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """With --explore on all chips."""
    if "chip" in metafunc.fixturenames:
        metafunc.parametrize("chip", [
            pytest.param(name, marks=[] if name in NEWEST else pytest.mark.explore)
            for name in CHIPS
        ])


def needs(chip: str) -> None:
    if reason := chips.missing(lambda: missing(CHIPS[chip])):
        judges.skip(reason)


@pytest.fixture
def driver(chip: str) -> None:
    needs(chip)


def model(folder):
    ports = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 64])] for name in ("x", "y")
    ]
    node = helper.make_node
    nodes = [node("MatMul", ["x", "x"], ["t"]), node("Softmax", ["t"], ["y"])]
    graph = helper.make_graph(nodes, "g", *ports)
    opset = [helper.make_opsetid("", 21)]
    path = folder / "model.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString()
    )
    return path


def test_the_profile_is_the_maker_s(chip, driver, record_property):
    profile = DeviceProfile.from_json(chip_profile(chip))
    record_property(LINE, f"a driver of chips: {profile.driver_name} {profile.driver_version}")
    assert profile.vendor_id == VENDORS[CHIPS[chip].driver.name]
    assert profile.memory_heaps and profile.memory_types and not profile.is_software
    # A shim may have a period of 0, by which no time can be told.
    assert ("timestamps" in profile.features) == (profile.timestamp_period > 0)


def test_statistics_of_a_model(chip, driver, tmp_path, capsys):
    needs_compiler()
    words = ["shader", "stats", str(model(tmp_path)), "--chip", chip]
    assert cli.main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found) >= 2
    for kernel in found:
        assert kernel.keys() >= FIELDS and kernel["chip"] == chip and kernel["state"] == "ok"
        assert kernel["spills"] == 0 and kernel["seconds"] > 0
        assert kernel["occupancy"] > 0 and kernel["registers"] > 0
        assert (kernel["cycles"] is None) == (chip == "m1")
    operators = [kernel["operators"] for kernel in found]
    assert operators[0][0].startswith("matmul") and operators[-1][0].startswith("softmax")


@pytest.mark.parametrize(("data_type", "load"), [("float16", "b64"), ("float32", "b128")])
def test_a_token_s_attention_has_32_loads_on_their_way(data_type, load):
    """Of keys, and of values, before the first of them is used; nothing is spilled. For the driver
    of NVIDIA's class, whose kernels have the most registers."""
    needs("ampere")
    profile = DeviceProfile.from_json(chip_profile("ampere"))
    profile = profile.replace(driver_name="NVIDIA", multiprocessors=132)
    node, _ = node_of(
        "attention", np.zeros((8, 4, 64), data_type),
        *[np.zeros((8, 4096, 64), data_type)] * 2, length=np.zeros(1, np.uint32),
    )
    steps = plan(node, profile)
    assert [step.kernel for step in steps] == ["attention", "attention_join"]
    modules = [
        Module.of_spec(s.spec, compile_spec(s.spec), s.specialised, s.kernel) for s in steps
    ]
    parts, join = compile_for("ampere", modules)
    assert CHIPS["ampere"].figures(parts.statistics)["spills"] == 0
    assert CHIPS["ampere"].figures(join.statistics)["spills"] == 0
    operations = re.findall(r"\b(ld\.global\S*|ffma|hfma2|f2f\S*)", parts.assembly)
    in_a_row = [len([*group]) for name, group in itertools.groupby(operations)
                if name.startswith("ld.global") and name.endswith(load)]
    assert sorted(in_a_row)[-2:] == [32, 32]


def test_rows_that_share_a_matrix_fit_the_registers(chip, driver):
    """One to eight rows, of both layouts and types, by the schedules that are chosen."""
    needs_compiler()
    profile = DeviceProfile.from_json(chip_profile(chip)).replace(multiprocessors=60)
    modules, shared = [], set()
    for data_type, rows, transposed in itertools.product(
        ("float32", "float16"), (1, 2, 4, 8), (False, True)
    ):
        x, w = (MLOperandDescriptor(data_type, (n, 4096)) for n in (rows, 4096))
        (step, *_) = plan(node_of("gemm", x, w, b_transpose=transposed)[0], profile)
        if step.kernel == "matvec":
            shared.add(step.constants["TR"] if rows > 1 else 1)
            spirv = compile_spec(step.spec)
            modules.append(Module.of_spec(step.spec, spirv, step.specialised, step.kernel))
    assert {1, 2, 4} <= shared
    for result in compile_for(chip, modules, assembly=False):
        figures = CHIPS[chip].figures(result.statistics)
        assert not figures["spills"] and not figures["fills"]


@pytest.mark.parametrize("chosen", ["ampere", "dg2"])
def test_halves_take_few_instructions(chosen):
    """As on AMD's chips; Intel's driver doesn't promise how it rounds, so that conversions are
    computed in integers there."""
    needs(chosen)
    counts = half_instructions.instructions(chosen)
    half_instructions.assert_short_forms(counts)
    if chosen != "dg2":
        for name, count in counts["float16"].items():
            assert count <= 1.15 * counts["float32"][name] + 48, name


def test_an_epilogue_loads_vectors_and_converts_by_instructions():
    """Of an addend and an operand; by elements, and by integer arithmetic, it took 1943
    instructions."""
    needs("ampere")
    profile = DeviceProfile.from_json(chip_profile("ampere"))
    emit = Emitter()
    shapes = dict(a=(512, 768), b=(768, 768), c=(768,), same=(512, 768))
    a, b, c, same = (graph_input(name, shape, "float16") for name, shape in shapes.items())
    value = emit.relu(emit.add(emit.gemm(a, b, c=c), same))
    (node,) = fuse(kernelize(graph_of(emit, {"y": value}, a, b, c, same)), profile).nodes
    (step,) = plan(node, profile.replace(driver_name="NVIDIA"))
    assert step.variant == "nn vv 64x64"
    module = Module.of_spec(step.spec, compile_spec(step.spec), step.specialised, step.kernel)
    (made,) = compile_for("ampere", [module])
    assert CHIPS["ampere"].figures(made.statistics)["spills"] == 0
    assert made.statistics["Instruction count"] < 1200
    # a and b are loaded 16 bytes at a time.
    loads = Counter(re.findall(r"ld\.global\S*\.(\w+)", made.assembly))
    assert loads.keys() == {"b128", "b64"} and loads["b64"] == 16


def test_tiles_of_a_prompt_over_a_cache_fit_the_registers(chip, driver):
    """Of 512 tokens in a window of 4,000, with bounded scores: the variant with the most registers.
    Mali has no tiles."""
    needs_compiler()
    profile = DeviceProfile.from_json(chip_profile(chip))
    modules = []
    for data_type in ("float32", "float16"):
        query, key = (
            MLOperandDescriptor(data_type, (8, *shape)) for shape in ((4, 512, 64), (1, 4000, 64))
        )
        seen = MLOperandDescriptor("uint8", (512, 4000))
        length = MLOperandDescriptor("uint32", (1,))
        node, _ = node_of(
            "attention", query, key, key, seen=seen, length=length, causal=True, softcap=50.0
        )
        (step,) = plan(node, profile)
        if step.kernel == "attention_tiled":
            spirv = compile_spec(step.spec)
            modules.append(Module.of_spec(step.spec, spirv, step.specialised, step.kernel))
    assert len(modules) == (0 if chip == "mali-g610" else 2)
    for result in compile_for(chip, modules, assembly=False):
        figures = CHIPS[chip].figures(result.statistics)
        assert not figures["spills"] and not figures["fills"]
        assert figures["occupancy"] >= device_class(profile).occupancy


SHADER = """#version 450
layout(local_size_x = 64) in;
layout(binding = 0) buffer Data { float x[]; };
void main() { x[gl_GlobalInvocationID.x] *= 2.0; }
"""


@pytest.fixture
def module(tmp_path):
    needs_compiler()
    return Module("good", compiled(SHADER, tmp_path), 1)


@pytest.fixture
def amd():
    needs("navi31")


def test_a_module_that_ends_the_driver_does_not_concern_the_others(amd, module):
    bad = Module("bad", b"\x03\x02\x23\x07" + bytes(16), 0)
    results = compile_for("navi31", [module, bad, module])
    assert [result.state for result in results] == ["ok", "crash", "ok"]
    assert results[1].error and results[0].statistics == results[2].statistics


def test_a_module_that_takes_too_long_ends(amd, module, tmp_path):
    statement = next(line for line in SHADER.splitlines() if "main" in line)
    step = "x[gl_GlobalInvocationID.x] = sin(x[gl_GlobalInvocationID.x + 1]);"
    slow = SHADER.replace(statement, f"void main() {{ {step * 2000} }}")
    slow = replace(module, spirv=compiled(slow, tmp_path))
    first, result = compile_for("navi31", [module, slow], limit=0.05)
    assert first.state in ("ok", "timeout")
    assert (result.state, result.statistics) == ("timeout", {})
    assert result.error == "compiling for navi31 took longer than 0.05 s"


def test_a_driver_that_does_not_start_is_told(amd, module, monkeypatch):
    monkeypatch.setattr(isa, "START", 0.05)
    for ask in (lambda: chip_profile("navi31"), lambda: compile_for("navi31", [module])):
        with pytest.raises(isa.IsaError, match="^starting the driver of navi31 took longer than 0"):
            ask()


def test_a_shader_of_ones_own(amd, tmp_path, capsys):
    needs_compiler()
    path = tmp_path / "double.comp.j2"
    path.write_text(
        '{% include "lib/prelude.glsl.j2" %}\nvoid main() {\n  uint i = invocation_index();\n'
        "  if (i < P.count) store_y(i, 2.0 * load_y(i));\n}\n"
    )
    words = ["shader", "stats", str(path), "--buffer", "y:float32:rw", "--param", "count"]
    assert cli.main([*words, "--chip", "navi31,ampere", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["chip"] for row in found] == ["navi31", "ampere"]
    assert {row["kernel"] for row in found} == {"double.comp.j2"}
    assert cli.main([*words, "--chip", "navi31"]) == 0
    assert "AMD Radeon RX 7900 XTX" in capsys.readouterr().out
    assert cli.main(["shader", "stats", "model.onnx", "--chip", "navi31", "--set", "A=1"]) == 2
    assert "--set is only for shaders" in capsys.readouterr().err


def test_an_unknown_chip_is_an_error(tmp_path, capsys):
    assert cli.main(["shader", "stats", str(model(tmp_path)), "--chip", "geforce256"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and len(err.splitlines()) == 1


GOES_ON = """
import sys, numpy, webnn_vk
from webnn_vk.driver.vulkan import quirks
from webnn_vk import MLGraphBuilder, MLOperandDescriptor as Descriptor, ml

if "as listed" in sys.argv:
    quirks.QUIRKS = ()
context = ml.create_context().result()
builder = MLGraphBuilder(context)
x = builder.input("x", Descriptor("int32", [8, 64]))
scale = builder.constant(Descriptor("float32", [1, 1]), numpy.float32([[0.5]]))
zero = builder.constant(Descriptor("int32", [1, 1]), numpy.int32([[3]]))
y = builder.relu(builder.dequantize_linear(x, scale, zero))
print(builder.build({"y": y}).result().report())
"""


def on_pascal(tmp_path, *arguments):
    """The steps' lines of `GOES_ON` by their names, and its warnings."""
    needs_compiler()
    needs("pascal")
    for name in ("webnn_vk", "jinja2", "markupsafe", "vulkan"):
        source = Path(importlib.import_module(name).__file__).resolve().parent
        tmp_path.joinpath(name).symlink_to(source)
    words, variables = command(CHIPS["pascal"], tmp_path, ["-c", GOES_ON, *arguments])
    done = subprocess.run(words, env=variables, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return {line.split()[0]: line for line in done.stdout.splitlines()}, done.stderr


def test_a_kernel_that_the_compiler_refuses_runs_on_the_cpu(tmp_path):
    """NVK has no free register for 64-bit steps on Pascal."""
    lines, warnings = on_pascal(tmp_path, "as listed")
    assert "the driver makes no pipeline of" in lines["dequantize_linear"], lines
    assert lines["relu"].split()[1] == "vulkan"
    assert "that the GLSL compiler or the driver of NVK" in warnings


def test_64_bit_steps_are_emulated_where_the_compiler_refuses_them(tmp_path):
    lines, warnings = on_pascal(tmp_path)
    words = lines["dequantize_linear"].split()
    assert words[:4] == ["dequantize_linear", "+", "relu", "vulkan"], lines
    assert "compiler" not in warnings


@pytest.mark.timeout(1800)
def test_kernels_of_a_model_fit_the_registers(chip, driver, pytestconfig):
    """One model on each chip; all of them with --explore."""
    needs_compiler()
    long = pytestconfig.option.explore
    parts = MODELS if long else chance("models", chip).sample([*MODELS], 1)
    found = list(judged(chip, parts))
    assert {row["part"] for row in found} == {*parts}
    bad = [row for row in found if row["state"] != "ok" or row["spills"] or row["fills"]]
    assert not bad
    device = device_class(DeviceProfile.from_json(chip_profile(chip)))
    assert min(row["occupancy"] for row in found) >= device.occupancy
    if long and CHIPS[chip].driver.architecture == "amd64":
        assert max(row["seconds"] for row in found) <= 5


#: Kernels that spill, and in how many modules; docs/devices.md says more. Skylake, the M1 and
#: Adreno have no instruction for products of integers, so that the planner does not choose this
#: kernel there. A register is missing for convolutions whose images are not whole vectors; the tile
#: that fits makes a quarter of the workgroups. Only tuning chooses the kernels that read texels,
#: and Winograd's last step for four channels at once.
SPILLING = {
    "skl": {"matmul_dot": 24, "conv_tiled": 4}, "tgl": {"conv_tiled": 4}, "m1": {"matmul_dot": 12},
    "adreno630": {"attention": 2, "matvec_blocks": 4, "winograd_output": 4, "conv_depthwise": 3},
    "adreno660": {"attention": 8, "matmul_dot": 12, "conv_depthwise": 2},
    "mali-g610": {
        "conv": 8, "conv_depthwise": 2, "matmul": 5, "matmul_dot": 6, "matvec_blocks": 4,
    },
}


@pytest.mark.explore
@pytest.mark.timeout(3600)
def test_the_archive_compiles(chip, driver):
    found = list(judged(chip, [PACK]))
    refused = [row for row in found if row["state"] != "ok"]
    assert not refused
    spilling = Counter(row["kernel"].split()[0] for row in found if row["spills"] or row["fills"])
    assert spilling <= Counter(SPILLING.get(chip, {}))
    if CHIPS[chip].driver.architecture == "amd64":
        assert max(row["seconds"] for row in found) <= 5


@pytest.mark.timeout(600)
def test_the_choices_are_near_the_best_by_the_drivers_estimate():
    """Products of recurrent networks, on an Intel GPU."""
    needs_compiler()
    needs("dg2")
    found = alternatives("dg2", ["recurrent"])
    products = [pair for pair in compared(found, 1 << 16) if pair[0].family == "matmul"]
    assert len(products) >= 3
    assert len(found) > 2 * len(products)  # there were others
    assert all(0 < best.cycles <= chosen.cycles <= 1.1 * best.cycles for chosen, best in products)


@pytest.mark.timeout(600)
def test_a_models_file_on_several_chips(tmp_path, capsys):
    """A line for each chip; what spills or fails would follow."""
    needs_compiler()
    for chip in ("navi31", "ampere"):
        needs(chip)
    with webnn.ml.create_context(settings=webnn.Settings(device="cpu")).result() as context:
        onnx.export(mobilenet_v2.build(context).result(), tmp_path / "mobilenet.onnx")
    words = ["shader", "stats", str(tmp_path / "mobilenet.onnx"), "--chip", "navi31,ampere"]
    assert cli.main(words) == 0
    titles, *lines = capsys.readouterr().out.splitlines()
    assert titles.split()[:5] == ["chip", "product", "kernels", "spilling", "failed"]
    assert [line.split()[0] for line in lines] == ["navi31", "ampere"]
    for line in lines:
        kernels, spilling, failed, occupancy, cycles = map(int, line.split()[-7:-2])
        assert kernels > 10 and (spilling, failed) == (0, 0) and 0 < occupancy < cycles


def test_a_missing_driver_names_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WEBNN_VK_CHIPS", str(tmp_path))
    assert cli.main(["shader", "stats", str(model(tmp_path)), "--chip", "dg2,m1"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.splitlines()[-1] == (
        f"webnn-vk: ANV for dg2 is not in {tmp_path}: scripts/install-chips lays it down"
    )
