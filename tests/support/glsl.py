"""GLSL compiled by the Khronos compiler, for tests of the layers below our own compiler."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

#: b[i] = a[i] * K + c for i < n; constants 0: invocations of a workgroup, 1: K.
SCALE = """#version 450
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint K = 1;
layout(push_constant) uniform P { uint n; uint c; };
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) buffer B { uint b[]; };
void main() { uint i = gl_GlobalInvocationID.x; if (i < n) b[i] = a[i] * K + c; }
"""


def compiled(source: str, folder: Path) -> bytes:
    """The SPIR-V of a compute shader; skips the test if glslangValidator isn't installed."""
    if shutil.which("glslangValidator") is None:
        pytest.skip("glslangValidator is not installed")
    file = folder / "shader.comp"
    file.write_text(source)
    target = file.with_suffix(".spv")
    subprocess.run(["glslangValidator", "--target-env", "vulkan1.2", "-V", file, "-o", target],
                   check=True, stdout=subprocess.DEVNULL)
    return target.read_bytes()
