"""In the clone's folder the sources take precedence over an installed wheel: whatever was
installed, all of them work there, and nothing else is imported."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.commands import blocks
from tests.support.paths import ROOT
from tests.system.packaging.conftest import copy_clone, install_into, quiet
from tests.system.packaging.test_wheel import TEN_LINES
from webnn_vk.support import source_tree

# The first of them waits for the wheel.
pytestmark = pytest.mark.timeout(900)

EDITABLE = "--no-build-isolation", "--config-settings"
#: Commands run before in the clone's folder: arguments of pip, None for nothing.
WAYS: dict[str, tuple[str, ...] | None] = {
    "nothing": None,
    "pip install .": (),
    "pip install -e .": ("--no-build-isolation", "-e", "."),
    "strict": (*EDITABLE, "editable_mode=strict", "-e", "."),
    "compat": (*EDITABLE, "editable_mode=compat", "-e", "."),
}
#: Every folder is found in the clone, and nothing of the clone that an installation lacks.
IMPORTS = """
import importlib, importlib.util, json
import webnn_vk
from webnn_vk.examples import sentence_encoder
import webnn_vk.codegen.isa, webnn_vk.shaders
webnn_vk.ml
names = "", ".codegen", ".codegen.isa", ".shaders", ".examples", ".examples.sentence_encoder"
print(json.dumps({
    "files": {name: importlib.import_module(f"webnn_vk{name}").__file__ for name in names},
    "beside": [name for name in ("tests", "webnn_vk", "bench", "docs", "scripts", "setup")
               if importlib.util.find_spec(f"webnn_vk.{name}")],
}))
"""


def run(python: Path, folder: Path, *arguments: str | Path, **variables: str) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [python, *arguments], capture_output=True, text=True, cwd=folder,
        env={**environment, **variables},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def files_of(printed: str) -> dict[str, Path]:
    found = json.loads(printed)
    assert found["beside"] == []
    return {name: Path(file) for name, file in found["files"].items()}


def in_clone(files: dict[str, Path], clone: Path) -> bool:
    places = {name: clone.joinpath(*name.split(".")[1:]) for name in files}
    places[""] = clone / "webnn_vk"
    return all(
        file in (places[name] / "__init__.py", places[name].with_suffix(".py"))
        for name, file in files.items()
    )


@pytest.fixture
def installed(environment: Callable[..., Path], clone: Path) -> Callable[[str], Path]:
    """Makes an environment that was installed in a given way; returns its Python."""

    def make(way: str) -> Path:
        arguments = WAYS[way]
        python = environment(packages=("setuptools", "wheel"), install=arguments == ())
        if arguments:
            quiet([sys.executable, "-m", "pip", "--python", python, "install", "--no-deps",
                   "--no-index", *arguments], cwd=clone)
        return python

    return make


# The first is the README's way; the others are tested with --explore.
TURNS = [
    pytest.param(way, marks=() if way == "pip install ." else pytest.mark.explore)
    for way in WAYS
]


@pytest.mark.parametrize("way", TURNS)
def test_the_clone_works_after(way, installed, clone, tmp_path):
    python = installed(way)
    assert in_clone(files_of(run(python, clone, "-c", IMPORTS)), clone)
    # Each of these begins in a new process: nothing was imported before.
    for name in ("", ".codegen", ".shaders", ".examples.weights"):
        run(python, clone, "-c", f"import webnn_vk{name}")
    assert run(python, clone, "-m", "webnn_vk", "--version").startswith("webnn_vk 0.")
    assert "matmul" in run(python, clone, "-m", "webnn_vk.codegen", "list")
    (snippet, *_) = blocks(ROOT / "README.md", "python")
    printed = run(python, clone, "-W", "ignore", "-c", snippet, WEBNN_VK_DEVICE="cpu")
    assert printed == "[[1. 1.]\n [1. 1.]]\n"
    if WAYS[way] is not None:  # elsewhere the installation is imported
        elsewhere = files_of(run(python, tmp_path, "-c", IMPORTS))
        assert in_clone(elsewhere, clone) == (way in ("pip install -e .", "compat"))


def test_by_pythonpath(environment, clone, tmp_path):
    python = environment(install=False)
    files = files_of(run(python, tmp_path, "-c", IMPORTS, PYTHONPATH=str(clone)))
    assert in_clone(files, clone)


def test_tests_run_in_the_clone_beside_a_wheel(environment, clone):
    python = environment(packages=("pytest", "pytest-timeout", "hypothesis"))
    printed = run(python, clone, "-m", "pytest", "-q", "-p", "no:cacheprovider",
                  "tests/unit/codegen/test_spec.py")
    assert re.search(r"\d+ passed", printed), printed


def test_another_clone_is_not_mixed_in(environment, clone, tmp_path):
    """The other folders come from the same place as `webnn_vk/`, installed editable or not."""
    python = environment(packages=("setuptools", "wheel"), install=False)
    other = copy_clone(tmp_path / "other")
    install_into(python, "--no-build-isolation", "-e", other)
    assert in_clone(files_of(run(python, clone, "-c", IMPORTS)), clone)
    assert in_clone(files_of(run(python, tmp_path, "-c", IMPORTS)), other)


def test_in_the_clone_the_wheels_archive_serves(environment, clone, tmp_path, vulkan):
    """A machine without a GLSL compiler runs on Vulkan there too."""
    python = environment()
    without = {"WEBNN_VK_GLSLANG": "none", "PATH": "", "WEBNN_VK_CACHE": str(tmp_path / "cache")}
    found = json.loads(run(python, clone, "-W", "ignore", "-c", TEN_LINES, "vulkan", **without))
    assert found["file"] == str(clone / "webnn_vk" / "__init__.py")
    result, steps = found["vulkan"]
    assert sum(result, []) == pytest.approx([1.0] * 4)
    assert set(steps) == {"vulkan"}
    without["WEBNN_VK_DEVICE"] = "vulkan"
    said = run(python, clone, "-m", "webnn_vk", "doctor", **without)
    assert "precompiled kernels, unfused" in said.splitlines()[0]


def test_without_wheel_and_compiler_the_clone_says_what_is_missing(environment, clone, tmp_path):
    python = environment(install=False)
    said = run(python, clone, "-m", "webnn_vk", "doctor", WEBNN_VK_GLSLANG="none", PATH="",
               WEBNN_VK_CACHE=str(tmp_path / "cache"))
    assert "install a GLSL compiler" in said


def test_the_source_archive_makes_the_same_wheel(clone, wheel_files, tmp_path):
    setup = "import sys; sys.argv = ['setup.py', 'sdist', '-q']; exec(open('setup.py').read())"
    quiet([sys.executable, "-c", setup], cwd=clone)
    (archive,) = (clone / "dist").glob("*.tar.gz")
    quiet([sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index",
           "-w", tmp_path, archive], env={**os.environ, "WEBNN_VK_BUILD_WITHOUT_PACK": "1"})
    (built,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(built) as opened:
        names = set(opened.namelist())
    assert names == set(wheel_files) - {"webnn_vk/codegen/pack.bin"}


def test_the_folders_are_those_of_the_build():
    (listed,) = re.findall(r"^FOLDERS = (.+)$", (ROOT / "setup.py").read_text(), re.MULTILINE)
    assert sorted(re.findall(r"\w+", listed)) == sorted(source_tree.FOLDERS)


def test_a_package_elsewhere_is_left_alone(monkeypatch, tmp_path):
    """Beside folders of these names that are not a checkout of this project, nothing is found."""
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    before = list(sys.meta_path)
    for name in source_tree.FOLDERS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    source_tree.find_folders("some_package", str(tmp_path / "some_package"))
    assert sys.meta_path == before
    (tmp_path / "pyproject.toml").touch()
    for _ in range(2):  # once, however often it is imported
        source_tree.find_folders("some_package", str(tmp_path / "some_package"))
    (finder, *rest) = sys.meta_path
    assert rest == before
    spec = finder.find_spec("some_package.codegen", [str(tmp_path / "some_package")])
    assert spec.origin == str(tmp_path / "codegen" / "__init__.py")
    assert finder.find_spec("some_package.tests", [str(tmp_path / "some_package")]) is None
    assert finder.find_spec("some_package.codegen", ["/elsewhere/some_package"]) is None
