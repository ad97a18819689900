"""The count at the end of the test run can fail."""

import shutil
import subprocess

import pytest

from tests.support import spirv_count

SHADER = """
#version 450
layout(local_size_x = 64) in;
layout(set = 0, binding = 0) buffer Data { float x[]; };
void main() { x[gl_GlobalInvocationID.x] *= 2.0; }
"""

needs_tools = pytest.mark.skipif(
    not (shutil.which("spirv-val") and shutil.which("glslangValidator")),
    reason="spirv-val or glslangValidator is not installed",
)


def compiled(folder, name):
    source = folder / "shader.comp"
    source.write_text(SHADER)
    target = folder / f"{name}.spv"
    subprocess.run(
        ["glslangValidator", "--target-env", "vulkan1.2", str(source), "-o", str(target)],
        check=True,
        capture_output=True,
    )
    return target


@needs_tools
def test_valid_module_is_counted(tmp_path):
    compiled(tmp_path, "aa")
    result = spirv_count.count(tmp_path)
    assert (result.pipelines, result.valid, result.failed) == (1, 1, False)
    assert result.lines() == ["SPIR-V: 1 modules became pipelines, 1 validated"]


@needs_tools
def test_invalid_module_fails_the_run(tmp_path):
    compiled(tmp_path, "aa")
    broken = compiled(tmp_path, "bb").read_bytes()
    # A truncated module ends inside a function.
    (tmp_path / "bb.spv").write_bytes(broken[: len(broken) // 8 * 4])
    result = spirv_count.count(tmp_path)
    assert (result.pipelines, result.valid, result.failed) == (2, 1, True)
    assert "INVALID bb" in "\n".join(result.lines())


@needs_tools
def test_module_of_an_unknown_extension_is_named(tmp_path):
    module = compiled(tmp_path, "cc").read_bytes()
    # OpCapability, two words long, with a number that no version of SPIR-V assigns.
    unknown = bytes.fromhex("11000200") + (0x7FFF).to_bytes(4, "little")
    (tmp_path / "cc.spv").write_bytes(module[:20] + unknown + module[20:])
    result = spirv_count.count(tmp_path)
    assert (result.valid, result.failed, list(result.unjudged)) == (0, False, ["cc"])
    assert "1 not judged" in result.lines()[0]


def test_missing_validator_is_said(tmp_path, monkeypatch):
    (tmp_path / "aa.spv").write_bytes(b"")
    monkeypatch.setenv("PATH", "")
    result = spirv_count.count(tmp_path)
    assert result.no_validator and "NONE validated" in result.lines()[0]
