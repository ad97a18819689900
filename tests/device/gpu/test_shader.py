"""Shader modules, their reflection, and pipelines."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import webnn_vk
from tests.support.gpu_shaders import (
    ALL,
    SCALE,
    STORAGE,
    contents,
    encode,
    needs_compiler,
    pipeline,
)
from tests.support.kernels import COPY, templates
from webnn_vk import NotSupportedError
from webnn_vk.codegen import Buffer, KernelSpec, Param
from webnn_vk.codegen.compiler import find_compiler
from webnn_vk.codegen.glsl import Source
from webnn_vk.gpu.reflection import reflect


def compiled(text: str) -> bytes:
    needs_compiler()
    (result,) = find_compiler().compile([Source(text)])
    assert isinstance(result, bytes), result
    return result


BINDINGS = """#version 450
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) writeonly buffer B { uint n; float b[]; };
layout(binding = 4) buffer C { uint c[]; };
layout(binding = 6) buffer D { readonly uint x; uint y; } d;
layout(push_constant) uniform P {
    layout(offset = 0) float f; layout(offset = 16) vec3 v; mat4 m; uint tail[5];
};
layout(constant_id = 3) const float F = 1.5;
layout(constant_id = 4) const int I = -1;
layout(constant_id = 5) const uint U = 1u;
layout(constant_id = 9) const bool Z = true;
layout(local_size_x = 8, local_size_y_id = 7) in;
void main() {
    b[0] = F + f + v.x + m[0][0] + float(tail[0] + a[0] + I + U); c[0] = Z ? 1 : d.x; d.y = c[1];
}
"""


def test_reflection() -> None:
    about = reflect(compiled(BINDINGS))
    assert about.entry_points == ("main",)
    assert about.bindings == {0: "r", 1: "w", 4: "rw", 6: "rw"}
    assert about.binding_count == 7
    assert about.push_size == 32 + 64 + 5 * 4
    assert about.constants == {3: "float", 4: "int", 5: "uint", 7: "uint", 9: "bool"}
    assert about.workgroup_size({}) == (8, 1, 1)
    assert about.workgroup_size({7: 4}) == (8, 4, 1)


@pytest.mark.parametrize(("declared", "message"), [
    ("layout(binding = 2) uniform U { float x; }; ", "binding 2 of set 0 is not a single storage"),
    ("layout(set = 1, binding = 0) buffer U { float x; }; ", "only set 0"),
    ("layout(binding = 0) buffer U { float x; } many[2]; ", "not a single storage buffer"),
    ("layout(binding = 3, r32f) uniform image2D i; ", "binding 3 of set 0"),
])
def test_what_cannot_be_bound(device: Any, declared: str, message: str) -> None:
    use = "many[1].x" if "many" in declared else "imageLoad(i, ivec2(0)).x" if "image" in declared \
        else "x"
    code = ("#version 450\n" + declared + "layout(binding = 7) buffer O { float o; };\n"
            f"void main() {{ o = {use}; }}")
    with pytest.raises(ValueError, match=f"create_shader_module \\[odd\\]: .*{message}"):
        device.create_shader_module(code=code, label="odd")


def test_glsl_errors_show_the_compilers_log(device: Any, compiler: None) -> None:
    code = "#version 450\nvoid main() {\n  flaot x = 1.0;\n}\n"
    with pytest.raises(ValueError, match="create_shader_module \\[typo\\].*") as error:
        device.create_shader_module(code=code, label="typo")
    assert "flaot" in str(error.value) and "3" in str(error.value)
    with pytest.raises(ValueError, match="zero byte"):
        device.create_shader_module(code="void main() {}\0")


def test_what_is_no_module(device: Any) -> None:
    with pytest.raises(TypeError, match="GLSL .*, SPIR-V .* or a KernelSpec, not int"):
        device.create_shader_module(code=7)
    for code in (b"", b"abc", bytes(64), struct.pack("<5I", 0x07230203, 0x10500, 0, 8, 0)):
        with pytest.raises(ValueError, match="create_shader_module"):
            device.create_shader_module(code=code)


def test_damaged_modules_are_refused_or_read() -> None:
    """For any words the reader ends, at worst with ValueError."""
    good = compiled(BINDINGS)
    source = random.Random(7)
    refused = 0
    for _ in range(400):
        damaged = bytearray(good)
        for _ in range(source.randint(1, 6)):
            at = 4 * source.randrange(5, len(good) // 4)
            struct.pack_into("<I", damaged, at, source.choice([0, 1, 7, 0xFFFF, 0x20003, 1 << 31]))
        try:
            reflect(bytes(damaged[: 4 * source.randint(5, len(good) // 4)]))
        except ValueError:
            refused += 1
    assert refused > 100


def test_spirv(device: Any) -> None:
    module = device.create_shader_module(code=compiled(SCALE))
    assert module.spirv == compiled(SCALE)
    assert module.entry_points == ("main",)
    assert module.bindings == {0: "r", 1: "w"}
    assert module.push_constant_size == 8


def test_entry_points(device: Any, compiler: None) -> None:
    """A module whose entry point has another name runs by that name."""
    code = compiled(
        "#version 450\nlayout(binding = 0) buffer A { uint a; };\nvoid main() { a = 5; }"
    )
    assert code.count(b"main\0") >= 1
    module = device.create_shader_module(code=code.replace(b"main\0", b"five\0"))
    assert module.entry_points == ("five",)
    with pytest.raises(ValueError, match="no entry point 'main'; the module has five"):
        device.create_compute_pipeline(module=module)
    made = device.create_compute_pipeline(module=module, entry_point="five")
    buffer = device.create_buffer(size=4, usage=ALL)
    device.queue.submit([encode(device, (made, [buffer], b"", 1))])
    assert contents(device, buffer, "uint32").tolist() == [5]


def test_constants(device: Any, compiler: None) -> None:
    code = """#version 450
    layout(constant_id = 0) const float F = 1.0; layout(constant_id = 1) const int I = 1;
    layout(constant_id = 2) const uint U = 1; layout(constant_id = 3) const bool Z = false;
    layout(binding = 0) buffer A { float f; int i; uint u; uint z; };
    void main() { f = F; i = I; u = U; z = Z ? 1 : 0; }"""
    module = device.create_shader_module(code=code)
    buffer = device.create_buffer(size=16, usage=ALL)
    for given, expected in (
        ({}, (1.0, 1, 1, 0)),
        ({0: -2.5, 1: -7, 2: 2**32 - 1, 3: True}, (-2.5, -7, 2**32 - 1, 1)),
        ({0: np.float32(0.25), 2: np.uint32(9)}, (0.25, 1, 9, 0)),
    ):
        made = device.create_compute_pipeline(module=module, constants=given)
        device.queue.submit([encode(device, (made, [buffer], b"", 1))])
        found = device.queue.read_buffer(buffer).result(60).tobytes()
        assert struct.unpack("<fiII", found) == expected
    for given, message in (
        ({8: 1}, "no 32-bit specialisation constant 8; the module has"),
        ({"F": 1}, "no 32-bit specialisation constant 'F'"),
        ({1: 1.5}, "constant 1 \\(int\\): 1.5 is no integer"),
        ({2: -1}, "constant 2 \\(uint\\)"),
        ({1: "x"}, "constant 1 \\(int\\)"),
        ({0: 1e60}, "constant 0 \\(float\\)"),
    ):
        with pytest.raises(ValueError, match=message):
            device.create_compute_pipeline(module=module, constants=given)
    with pytest.raises(TypeError, match="constants map ids to numbers, not list"):
        device.create_compute_pipeline(module=module, constants=[1])


def test_workgroups_that_are_too_large(device: Any, compiler: None) -> None:
    most = device.limits["max_compute_invocations_per_workgroup"]
    code = "#version 450\nlayout(local_size_x_id = 0, local_size_y = 2) in; void main() {}"
    module = device.create_shader_module(code=code)
    device.create_compute_pipeline(module=module, constants={0: most // 2})
    for size in (most, 0):
        with pytest.raises(ValueError, match="a workgroup of"):
            device.create_compute_pipeline(module=module, constants={0: size})


def test_kernel_spec(device: Any) -> None:
    """Our own code generator's kernels, with constants and parameters by name."""
    needs_compiler()
    spec = KernelSpec(
        "gpu_copy.comp.j2",
        (Buffer("a", "float32"), Buffer("out", "float32", "w")),
        (Param("n"),),
        options=(("vectors", False),),
    )
    with templates(gpu_copy=COPY):
        module = device.create_shader_module(code=spec)
    made = device.create_compute_pipeline(module=module, constants={"LX": 32})
    values = np.arange(100, dtype=np.float32)
    source = device.create_buffer_with_data(data=values, usage=STORAGE)
    target = device.create_buffer(size=400, usage=ALL)
    device.queue.submit([encode(device, (made, [source, target], {"n": 90}, 4))])
    assert np.array_equal(contents(device, target), np.where(values < 90, values, 0))
    # Without a size a workgroup would be one invocation: 1 element of 32 copied, and no word.
    for left_out in ({}, {"LY": 2}):
        with pytest.raises(ValueError, match="gpu_copy.comp.j2 needs the constants LX"):
            device.create_compute_pipeline(module=module, constants=left_out)
    device.create_compute_pipeline(module=module, constants={0: 32})
    with pytest.raises(ValueError, match="'LT'; the module has .*LX"):
        device.create_compute_pipeline(module=module, constants={"LT": 1})
    with pytest.raises(NotSupportedError, match="cooperative_matrix"):
        device.create_shader_module(code=replace(spec, features=frozenset({"cooperative_matrix"})))


def test_wrong_pipelines(device: Any, own_device: Any, compiler: None) -> None:
    module = device.create_shader_module(code=SCALE)
    with pytest.raises(TypeError, match="GPUShaderModule is expected"):
        device.create_compute_pipeline(module=SCALE)
    with pytest.raises(ValueError, match="another GPUDevice"):
        own_device.create_compute_pipeline(module=module)
    many = device.limits["max_storage_buffers_per_shader_stage"]
    declared = "".join(
        f"layout(binding = {i}) buffer B{i} {{ uint b{i}; }};\n" for i in (0, many)
    )
    code = f"#version 450\n{declared} void main() {{ b0 = b{many}; }}"
    with pytest.raises(ValueError, match=f"{many + 1} storage buffers"):
        pipeline(device, code)


def test_without_a_compiler(adapter: Any) -> None:
    code = compiled(SCALE)
    settings = webnn_vk.Settings(glslang="none")
    with adapter.request_device(settings=settings).result(60) as device:
        with pytest.raises(NotSupportedError, match="no GLSL compiler .*SPIR-V is accepted"):
            device.create_shader_module(code=SCALE)
        assert device.create_shader_module(code=code).bindings == {0: "r", 1: "w"}
