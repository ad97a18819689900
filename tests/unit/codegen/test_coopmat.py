"""The real form of products by cooperative matrices, which no driver here runs: it compiles, and a
spirv-val that knows the extension accepts it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.isa.catalogue import catalogue
from tests.support.kernels import compile_spec
from tests.support.matrices import fused_products
from tests.support.profiles import stored_profile
from tests.support.running import node_of, plan
from tests.support.spirv_validator import fault, validator
from webnn_vk.codegen import spirv_check
from webnn_vk.codegen.archive import ShaderArchive
from webnn_vk.codegen.compiler import find_compiler, supports
from webnn_vk.codegen.glsl import GlslError, Source
from webnn_vk.codegen.render import render
from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.codegen.spirv import info
from webnn_vk.codegen.store import MATRIX_EXTENSION, ShaderStore, build_pack
from webnn_vk.compiler.kernels import MATRIX_FEATURES, coopmat
from webnn_vk.compiler.kernels.expression import HALF_CONVERSIONS
from webnn_vk.compiler.types.data_types import FLOAT_TYPES, MLOperandDescriptor
from webnn_vk.tools import shader_archive

NVIDIA = stored_profile("nvidia_ampere")


def _products(data_type: str, features: frozenset[str] = HALF_CONVERSIONS) -> list[KernelSpec]:
    return [
        spec for spec in catalogue(MATRIX_FEATURES | {"float16"} | features, "matmul")
        if spec.template == "matmul_coopmat.comp.j2" and spec.option("operand") == data_type
    ]


def _of_blocks() -> list[KernelSpec]:
    """With weights in blocks, which become float16 by exact conversions."""
    return [
        spec for spec in catalogue(
            MATRIX_FEATURES | HALF_CONVERSIONS | {"float16"}, "block_product"
        )
        if spec.template == "matmul_coopmat.comp.j2" and spec.option("bits")
    ]


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("addend", [False, True])
@pytest.mark.parametrize("data_type", FLOAT_TYPES)
def test_every_variant_is_valid(data_type: str, addend: bool) -> None:
    program = validator()
    specs = [spec for spec in _products(data_type) if spec.option("addend") is addend]
    # Without an addend there are also those whose float32 sums are one of several parts.
    assert len(specs) == (56 if data_type == "float16" and not addend else 28)
    for spec in specs:
        module = compile_spec(spec)
        spirv_check.check(module)
        assert not fault(program, module), spec.key()


def test_variants_of_weights_in_blocks_are_valid() -> None:
    program = validator()
    specs = _of_blocks()
    assert {(spec.option("bits"), spec.option("has_offset")) for spec in specs} == {
        (4, False), (4, True), (8, False), (8, True)
    }
    for spec in specs:
        assert spec.features >= MATRIX_FEATURES | HALF_CONVERSIONS
        module = compile_spec(spec)
        spirv_check.check(module)
        assert not fault(program, module), spec.key()


def test_fused_kernels_are_valid() -> None:
    program = validator()
    fused = list(fused_products(NVIDIA, coopmat.KERNEL))
    assert fused
    for spec in fused:
        module = compile_spec(spec)
        spirv_check.check(module)
        assert not fault(program, module), spec.key()


def test_the_validator_finds_what_is_wrong() -> None:
    """A product of fragments that don't fit together."""
    program = validator()
    text = render(_products("float16")[0])
    assert "coopmat<float16_t, gl_ScopeSubgroup, FK, FN, gl_MatrixUseB>" in text
    # As numbers: specialised sizes may still have any value.
    text = text.replace("FM, FK, gl_MatrixUseA", "16, 16, gl_MatrixUseA").replace(
        "FK, FN, gl_MatrixUseB", "16, 16, gl_MatrixUseB").replace(
        "FM, FN, gl_MatrixUseAccumulator", "16, 16, gl_MatrixUseAccumulator")
    (right,) = find_compiler().compile([Source(text)])
    assert not fault(program, right)
    raw = bytearray(right)
    opcode = (4459 | 6 << 16).to_bytes(4, "little")  # OpCooperativeMatrixMulAddKHR
    at = raw.index(opcode)
    # a and b change places.
    raw[at + 12 : at + 16], raw[at + 16 : at + 20] = raw[at + 16 : at + 20], raw[at + 12 : at + 16]
    assert "ooperative" in fault(program, bytes(raw))


def test_capabilities() -> None:
    validator()
    needed = {"CooperativeMatrixKHR", "VulkanMemoryModel", "GroupNonUniform"}
    real = _products("float16")[0]
    assert info(compile_spec(real)).capabilities >= needed | {"Float16"}
    assert "Float16" not in info(compile_spec(_products("float32")[0])).capabilities
    real = _products("float16", frozenset())[0]
    emulated = KernelSpec(
        real.template, real.buffers, real.params, real.constants, real.options,
        real.features - MATRIX_FEATURES,
    )
    assert not info(compile_spec(emulated)).capabilities & (needed | {"Float16"})


@pytest.mark.explore  # plans the whole archive
def test_the_pack_has_them_where_the_compiler_knows_them() -> None:
    with_matrices, without = set(shader_archive.specs()), set(shader_archive.specs(matrices=False))
    products = {*_products("float16"), *_products("float32"), *_of_blocks()}
    products |= {*_products("float16", frozenset())}  # converted by integer arithmetic
    assert with_matrices - without == products
    for a, b in (((512, 256), (256, 384)), ((33, 256), (256, 383))):
        node, _ = node_of("matmul", *(MLOperandDescriptor("float16", s) for s in (a, b)))
        assert plan(node, NVIDIA)[0].spec in with_matrices - without


class Old:
    """A GLSL compiler without cooperative matrices, but with everything else that this machine's
    supports."""

    identity = "old"
    version = "old 1.0"

    def prepare(self) -> None:
        pass

    def compile(self, sources: Sequence[Source]) -> list[bytes | GlslError]:
        compiler = find_compiler()
        if compiler is None:
            pytest.skip("no GLSL compiler on this machine")
        return [
            GlslError(s.name, "extension not supported", s.text)
            if MATRIX_EXTENSION in s.text else compiler.compile([s])[0] for s in sources
        ]


def test_a_compiler_that_is_too_old_offers_no_such_kernel(tmp_path: Path) -> None:
    validator()
    spec = _products("float16")[0]
    old = ShaderStore(None, pack=None, compiler=Old())
    assert not old.available(spec)
    with pytest.raises(GlslError, match="extension not supported"):
        old.get([spec])
    assert ShaderStore(None, pack=None).available(spec)
    # From an archive it is available nevertheless.
    build_pack([spec], tmp_path / "pack.bin")
    old = ShaderStore(None, pack=tmp_path / "pack.bin", compiler=Old())
    assert old.available(spec) and len(old.get([spec])) == 1
    assert old.origins["pack"] == 1


@pytest.mark.explore
def test_the_pack_says_what_it_lacks(monkeypatch, tmp_path: Path, capsys) -> None:
    few = [s for s in catalogue(frozenset(), "copy") if s.template == "copy.comp.j2"][:1]
    # Archives of a few kernels must not be used by other builds of these sources.
    monkeypatch.setenv("WEBNN_VK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(shader_archive, "specs", lambda matrices: few)
    if find_compiler() is None:
        pytest.skip("no GLSL compiler on this machine")
    monkeypatch.setattr(shader_archive, "supports", lambda compiler, extension: False)
    assert shader_archive.main([str(tmp_path)]) == 0
    about = ShaderArchive(tmp_path / "pack.bin").about
    assert about["templates"] == ["copy.comp.j2"]
    assert about["left_out"] == {"matmul_coopmat.comp.j2": 222}
    said = "left out, as the GLSL compiler is too old: 222 modules of matmul_coopmat.comp.j2"
    assert said in capsys.readouterr().out
    assert shader_archive.left_out(True) == {}


def test_supports() -> None:
    compiler = find_compiler("process")
    if compiler is None:
        pytest.skip("no GLSL compiler on this machine")
    assert supports(compiler, "GL_EXT_control_flow_attributes")
    assert not supports(compiler, "GL_NONE_such_thing")
    validator()
    assert supports(find_compiler(), MATRIX_EXTENSION)
