"""Every kernel of the shader archive and of the models compiles for AMD's chips, the models'
kernels without spills.

RADV's null device compiles. Nothing runs, and no GPU is needed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import webnn_vk.codegen.isa
from bench.isa import PACK, Judgement, judge, report, title
from bench.isa.catalogue import catalogue
from bench.isa.graphs import GRAPHS
from tests.support import half_instructions, summary
from tests.support.paths import ROOT
from tests.support.profiles import stored_profile
from webnn_vk.codegen.isa import FAMILIES, NoDriver, environment
from webnn_vk.tools import ToolError

#: Kernels of the models that spill, by `title`. The list may only shrink.
SPILLING: dict[str, frozenset[str]] = {chip: frozenset() for chip in FAMILIES}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("listings")


# RDNA and GCN are also among the chips (test_chips.py).
@pytest.fixture(scope="module", params=[
    pytest.param(chip, marks=pytest.mark.explore if chip != FAMILIES[-1] else ())
    for chip in FAMILIES
])
def judgement(request, radv, folder) -> Judgement:
    """The models' kernels, compiled once for each chip, with their listings."""
    return judge(request.param, [*GRAPHS], isa=folder / request.param, timeout=800)


def of(judgement: Judgement, *parts: str) -> list[dict[str, Any]]:
    return [kernel for kernel in judgement.kernels if kernel["part"] in parts]


def assert_all_compile(judgement: Judgement, parts: set[str], record_property) -> None:
    for line in judgement.lines():
        record_property(summary.LINE, line)
    assert judgement.chip in judgement.device and "Null hardware" in judgement.device
    assert not judgement.failed
    compiled = [kernel["part"] for kernel in judgement.kernels if kernel["statistics"]["VGPRs"]]
    assert {part: compiled.count(part) for part in judgement.asked} == judgement.asked
    assert set(judgement.asked) == parts and all(judgement.asked.values())


@pytest.mark.timeout(900)
def test_all_kernels_of_the_models_compile_and_spill_nothing(judgement, record_property):
    assert_all_compile(judgement, {*GRAPHS}, record_property)
    assert {title(k) for k in judgement.spilling} == SPILLING[judgement.chip]


@pytest.mark.explore
@pytest.mark.timeout(900)
@pytest.mark.parametrize("chip", FAMILIES)
def test_the_archive_compiles(chip, radv, record_property):
    judgement = judge(chip, [PACK], listings=False, timeout=800)
    assert_all_compile(judgement, {PACK}, record_property)
    # The stored profile has the chips' data types, so the archive fits them; this driver has no
    # cooperative matrices. Lanes exchange what they load only on processors.
    features = stored_profile("amd_navi31").masked(["cooperative_matrix"]).features
    fitting = [spec for spec in catalogue(features) if ("shuffle", True) not in spec.options]
    assert judgement.modules[PACK] == len(fitting)


def test_the_listing_is_read(judgement, folder):
    kernels = of(judgement, "mobilenet_v2")
    assert len([*(folder / judgement.chip).glob("mobilenet_v2-*.s")]) == len(kernels)
    for kernel in kernels:
        # The driver counts its own instructions: none was missed or invented.
        assert kernel["mix"]["instructions"] == kernel["statistics"]["Instructions"]
    depthwise = next(k for k in kernels if "KH=3 KW=3 SH=1" in k["name"])
    # 4 rows of 4 pixels with 9 taps.
    assert depthwise["mix"]["multiply_adds"] == 144
    tiled = next(k for k in kernels if k["name"].startswith("matmul_tiled"))
    assert tiled["mix"]["lds"] and tiled["statistics"]["LDS size"]
    rows = report.rows(judgement)
    assert len(rows) == sum(judgement.asked.values())
    assert {len(row) for row in rows} == {len(report.TITLES)}


@pytest.mark.parametrize("chip", FAMILIES)
def test_halves_take_few_instructions(chip, radv):
    """A kernel on float16 has at most 1.15 times the instructions of that on float32, beside one
    to three for each element that it reads or writes."""
    counts = half_instructions.instructions(chip)
    for name, count in counts["float16"].items():
        assert count <= 1.15 * counts["float32"][name] + 48, name
    half_instructions.assert_short_forms(counts)


def test_products_mostly_multiply(judgement):
    """Products of 1024³: in the loop that runs once per tile, at least 85 % of the issued
    instructions are multiply-adds, all loads and stores move 16 bytes a lane, and the next tile is
    loaded before this one is multiplied."""
    kernels = of(judgement, "products_f32", "products_f16")
    names = [kernel["name"] for kernel in kernels]
    assert len(names) == 8 and all(name.startswith("matmul_tiled") for name in names)
    for kernel in kernels:
        loop = kernel["mix"]["loop"]
        assert loop["multiply_adds"] == 8 * 8 * 8
        assert loop["before_loads"] <= 8 * 8
        assert set(loop["lds"]) == {"16"}
        assert set(loop["loads"]) == {"16"}
        assert loop["fma_share"] >= 0.85


def test_convolutions_mostly_multiply(judgement):
    """As for products: in the loop that runs once per tile, the next tile is loaded before this one
    is multiplied. With channels last, all loads and stores move 16 bytes a lane."""
    kernels = of(judgement, "convolutions")
    assert all(k["name"].startswith("conv_tiled") for k in kernels)
    loops = {k["use"].split("[")[1].rstrip("])"): k["mix"]["loop"] for k in kernels}
    assert loops.keys() == {"nchw_64", "nchw_256", "nhwc_64", "nhwc_256"}
    for name, loop in loops.items():
        assert loop["multiply_adds"] == 256 and set(loop["lds"]) == {"16"}
        assert set(loop["loads"]) <= ({"16"} if name.startswith("nhwc") else {"4", "16"})
        assert loop["before_loads"] == 0
        assert loop["fma_share"] >= 0.75


def test_winograd_mostly_multiplies(judgement):
    """The products between Winograd's transforms, in the loop that runs once per tile: all loads
    and stores move 16 bytes a lane, and the next tile is loaded before this one is multiplied. The
    transforms load each number once."""
    kernels = of(judgement, "winograd")
    products = [k for k in kernels if k["name"].startswith("matmul_tiled")]
    assert len(products) == 4
    for kernel in products:
        loop = kernel["mix"]["loop"]
        large = "TM=8" in kernel["name"]
        assert loop["multiply_adds"] == (512 if large else 256)
        assert loop["before_loads"] <= 8 * 8
        assert set(loop["lds"]) == set(loop["loads"]) == {"16"}
        assert loop["fma_share"] >= (0.9 if large else 0.84)
    transforms = [k for k in kernels if k not in products]
    assert len(transforms) == 5 and {k["name"].split(" ")[0] for k in transforms} == {
        "winograd_input", "winograd_tiled_output"
    }
    for kernel in transforms:
        assert sum(kernel["mix"]["loads"].values()) == 36 and not kernel["mix"]["loop"]


def test_stems_mostly_multiply(judgement):
    """A convolution of three channels, as at the beginning of a model: no element of the filter
    takes a vector register or a vector load."""
    kernels = of(judgement, "resnet50")
    (stem,) = (k for k in kernels if k["name"].startswith("conv_wide"))
    loop = stem["mix"]["loop"]
    # 3 channels of 2 pixels for 16 outputs.
    assert loop["multiply_adds"] == 3 * 2 * 16 and loop["loads"] == {"4": 3 * 2}
    # The loop over taps is the only one: the position of a tap in the image is computed inside it.
    assert not loop["lds"] and loop["fma_share"] >= 0.65


def test_small_products_mostly_multiply(judgement):
    """Tiles of 4 × 4 sums per invocation, as in the models' products."""
    kernels = of(judgement, "mobilenet_v2", "minilm_8x64")
    tiled = [k for k in kernels if "matmul_tiled" in k["name"] and "TM=4" in k["name"]]
    assert len(tiled) >= 6
    for kernel in tiled:
        loop = kernel["mix"]["loop"]
        assert loop["before_loads"] == 0 and set(loop["lds"]) == {"16"}
        by_elements = "| f32x4 f32 f32" in kernel["name"]
        assert set(loop["loads"]) == ({"4", "16"} if by_elements else {"16"})
        assert loop["fma_share"] >= (0.75 if by_elements else 0.8)


def test_attention_multiplies_in_shared_memory(judgement):
    """With many queries: tiles are moved by 16 bytes a lane, except the largest scores, without
    spills."""
    kernels = of(judgement, "attention")
    tiled = [k for k in kernels if k["name"].startswith("attention_tiled")]
    assert len(tiled) == 4 and len(kernels) == 8
    for kernel in tiled:
        loop = kernel["mix"]["loop"]
        # 4 × 4 scores of 16 elements, and the share of the sums that a tile of values has.
        assert loop["multiply_adds"] > 2 * 4 * 4 * 16
        assert set(loop["lds"]) == {"8", "16"} and loop["lds"]["8"] <= 2
        assert set(loop["loads"]) == {"16" if "f32" in kernel["name"] else "8"}
        # Each instruction is counted once, though the loops over tiles run 2 to 8 times.
        assert loop["fma_share"] >= 0.55


# Tiles of 16 × 16 sums per invocation need more registers than exist.
GREEDY = """
from bench.isa.catalogue import catalogue
from bench.isa.kernels import Kernel
from webnn_vk.codegen.store import ShaderStore
from webnn_vk.driver.vulkan.compile_only.device import CompileOnlyDevice

device = CompileOnlyDevice("NAVI21")
known = catalogue(device.profile.features, "matmul")
spec = next(s for s in known if s.template == "matmul_tiled.comp.j2")
sizes = {"LX": 16, "LY": 16, "TM": 16, "TN": 16, "BK": 16}
ids, data = spec.pack_constants(sizes)
constants = tuple((i, data[4 * n : 4 * n + 4]) for n, i in enumerate(ids))
(module,) = ShaderStore().get([spec])
statistics = device.compile(Kernel(spec, constants).request(module)).statistics
print(statistics["Spilled VGPRs"])
"""


def test_spills_are_seen(radv):
    done = subprocess.run(
        [sys.executable, "-c", GREEDY], cwd=ROOT, env=environment("NAVI21"), capture_output=True,
        text=True, timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0


def test_an_unknown_chip_is_an_error(radv):
    with pytest.raises(ToolError, match="NAVI99"):
        judge("NAVI99", ["recurrent"])


def test_without_the_driver(monkeypatch, tmp_path):
    monkeypatch.setattr(webnn_vk.codegen.isa, "_MANIFESTS", (f"{tmp_path}/radeon_icd.*.json",))
    with pytest.raises(NoDriver, match="mesa-vulkan-drivers"):
        judge("NAVI21", ["recurrent"])
