"""A wheel without precompiled shaders can't be built by accident."""

import subprocess
import sys
import sysconfig
import tomllib
import zipfile

import pytest

from tests.support.paths import ROOT


@pytest.fixture
def python(tmp_path):
    """A Python that sees the build's packages except the compiler installed by pip."""
    home = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    (site,) = (home / "lib").glob("python*/site-packages")
    here = sysconfig.get_paths()["purelib"]
    hide = "import sys; sys.modules['vkdispatch_vulkan_native'] = None"
    (site / "a_path.pth").write_text(f"{here}\n{hide}\n")
    return home / "bin" / "python"


def build(python, source, folder, **variables):
    command = [python, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    # Neither a program nor a library is found: PATH is empty, so find_library's helpers are missing
    # too.
    return subprocess.run(
        [*command, "-w", folder, source],
        capture_output=True,
        text=True,
        env={"PATH": "", "HOME": str(folder), **variables},
    )


def test_the_build_fails_and_says_what_to_install(python, source_tree, tmp_path):
    done = build(python, source_tree, tmp_path)
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "the shaders could not be compiled: " in said and "no GLSL compiler" in said
    for remedy in ("apt install glslang-tools", "brew install glslang", "pip install vkdispatch"):
        assert remedy in said
    assert "WEBNN_VK_BUILD_WITHOUT_PACK=1" in said
    assert not list(tmp_path.glob("*.whl"))


def test_a_wheel_without_a_pack_can_be_asked_for(python, source_tree, tmp_path):
    done = build(python, source_tree, tmp_path, WEBNN_VK_BUILD_WITHOUT_PACK="1")
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "webnn_vk/codegen/__init__.py" in names and "webnn_vk/codegen/pack.bin" not in names


def test_the_build_brings_its_compiler_on_linux():
    about = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (compiler,) = [r for r in about["build-system"]["requires"] if "vkdispatch" in r]
    assert "sys_platform == 'linux' and platform_machine == 'x86_64'" in compiler
    assert about["project"]["urls"]["Specification"] == "https://www.w3.org/TR/webnn/"
