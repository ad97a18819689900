"""Reading and patching SPIR-V."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator

import pytest

from tests.support.kernels import COPY, compile_spec, templates, validate
from webnn_vk.codegen import spirv
from webnn_vk.codegen.compiler import find_compiler
from webnn_vk.codegen.glsl import Source
from webnn_vk.codegen.render import render
from webnn_vk.codegen.spec import Buffer, KernelSpec, Param


@pytest.fixture
def spec() -> Iterator[KernelSpec]:
    with templates(copy=COPY):
        yield KernelSpec(
            "copy.comp.j2", (Buffer("a", "float32"), Buffer("out", "float32", "w")), (Param("n"),),
            options=(("vectors", False),),
        )


def test_info(spec: KernelSpec) -> None:
    about = spirv.info(module := compile_spec(spec))
    assert about.version == (1, 5)
    assert about.entry_point == "main"
    assert about.bindings == ((0, 0), (0, 1))
    assert about.constant_ids == (0, 1, 2)
    assert about.capabilities == {"Shader"}
    assert about.size == len(module)


def test_local_size(spec: KernelSpec) -> None:
    """As the module says, or 1 in each direction."""
    words = spirv.words_of(compile_spec(spec))
    ((place, end),) = [(p, e) for op, p, e in spirv.instructions(words) if op == 16]
    words[place + 3 : end] = array("I", (8, 4, 2))
    assert spirv.info(words.tobytes()).local_size == (8, 4, 2)
    del words[place:end]
    assert spirv.info(words.tobytes()).local_size == (1, 1, 1)


def test_strip_only_takes_names(spec: KernelSpec) -> None:
    compiler = find_compiler()
    if compiler is None:
        pytest.skip("no GLSL compiler on this machine")
    (module,) = compiler.compile([Source(render(spec))])
    stripped = spirv.strip(module)
    validate(stripped)
    assert len(stripped) < len(module) and b"GL_EXT_control_flow_attributes" in module
    assert b"GL_EXT" not in stripped and b"workgroup_index" not in stripped
    assert spirv.strip(stripped) == stripped
    assert spirv.info(stripped).bindings == spirv.info(module).bindings


@pytest.mark.parametrize(
    ("features", "added"),
    [
        ({"nan_preserve_f32"}, {"SignedZeroInfNanPreserve"}),
        ({"denorm_preserve_f32"}, {"DenormPreserve"}),
        ({"denorm_flush_f32", "rounding_rte_f32"}, {"DenormFlushToZero", "RoundingModeRTE"}),
        (
            {"nan_preserve_f32", "nan_preserve_f16", "denorm_preserve_f32"},
            {"SignedZeroInfNanPreserve", "DenormPreserve"},
        ),
    ],
)
def test_float_controls(spec: KernelSpec, features: set[str], added: set[str]) -> None:
    module = compile_spec(spec)
    patched = spirv.add_float_controls(module, frozenset(features))
    validate(patched)
    assert spirv.info(patched).capabilities == {"Shader"} | added
    # 2 words a capability, 4 an execution mode
    assert len(patched) == len(module) + 8 * len(added) + 16 * len(features)


def test_other_features_change_nothing(spec: KernelSpec) -> None:
    module = compile_spec(spec)
    assert spirv.add_float_controls(module, frozenset({"int8", "float16"})) == module


def test_other_byte_order_is_read(spec: KernelSpec) -> None:
    module = compile_spec(spec)
    count = len(module) // 4
    swapped = struct.pack(f">{count}I", *struct.unpack(f"<{count}I", module))
    assert spirv.info(swapped) == spirv.info(module)
    assert spirv.strip(swapped) == spirv.strip(module)


def test_damaged_modules_are_refused(spec: KernelSpec) -> None:
    module = compile_spec(spec)
    for damaged in (
        b"", b"abc", module[:-2], b"\0" * 64, module[:20] + b"\0" * (len(module) - 20),
        module[:20] + struct.pack("<I", 0xFFFF0011) + module[24:], module[:20],
    ):
        with pytest.raises(spirv.SpirvError):
            spirv.info(damaged)


def test_listing_without_spirv_dis(spec: KernelSpec) -> None:
    text = spirv.listing(compile_spec(spec))
    assert "no spirv-dis found" in text and "Capability Shader" in text
