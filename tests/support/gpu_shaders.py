"""Shaders for the tests, and functions that run them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from webnn_vk.codegen.compiler import find_compiler
from webnn_vk.gpu import GPUBufferUsage

STORAGE, COPY_SRC, COPY_DST = (
    GPUBufferUsage.STORAGE, GPUBufferUsage.COPY_SRC, GPUBufferUsage.COPY_DST,
)
ALL = STORAGE | COPY_SRC | COPY_DST

# b[i] = a[i] * K + c
SCALE = """#version 450
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const float K = 1.0;
layout(push_constant) uniform P { uint n; float c; };
layout(binding = 0) readonly buffer A { float a[]; };
layout(binding = 1) writeonly buffer B { float b[]; };
void main() { uint i = gl_GlobalInvocationID.x; if (i < n) b[i] = a[i] * K + c; }
"""

# In place: a[i] *= 2, of 32-bit floats and of 16-bit floats, two in a word.
DOUBLE = {
    "float32": """#version 450
layout(local_size_x = 64) in;
layout(binding = 0) buffer A { float a[]; };
void main() { uint i = gl_GlobalInvocationID.x; if (i < a.length()) a[i] *= 2.0; }
""",
    "float16": """#version 450
layout(local_size_x = 64) in;
layout(binding = 0) buffer A { uint a[]; };
void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i < a.length()) a[i] = packHalf2x16(unpackHalf2x16(a[i]) * 2.0);
}
""",
}


def needs_compiler() -> None:
    if find_compiler() is None:
        pytest.skip("no GLSL compiler")


def pipeline(device: Any, code: Any, **options: Any) -> Any:
    return device.create_compute_pipeline(
        module=device.create_shader_module(code=code, label="test"), **options
    )


def scale_pipeline(device: Any, factor: float = 1.0) -> Any:
    return pipeline(device, SCALE, constants={0: 64, 1: factor})


def push(count: int, added: float = 0.0) -> bytes:
    return np.uint32(count).tobytes() + np.float32(added).tobytes()


def encode(device: Any, *dispatches: Any) -> Any:
    """A command buffer of (pipeline, buffers, push constants, groups)."""
    encoder = device.create_command_encoder()
    with encoder.begin_compute_pass() as compute:
        for made, buffers, constants, groups in dispatches:
            compute.set_pipeline(made)
            compute.set_bind_group(0, device.create_bind_group(entries=buffers))
            if constants:
                compute.set_push_constants(constants)
            compute.dispatch_workgroups(groups)
    return encoder.finish()


def double(device: Any, buffer: Any, data_type: str = "float32") -> Any:
    """Submits a shader that doubles a buffer's numbers in place."""
    made = pipeline(device, DOUBLE[data_type])
    groups = -(-buffer.size // 4 // 64) or 1
    return device.queue.submit([encode(device, (made, [buffer], b"", groups))])


def contents(device: Any, buffer: Any, data_type: str = "float32") -> np.ndarray:
    return device.queue.read_buffer(buffer).result(60).view(data_type)
