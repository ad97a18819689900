"""The cache of whole shader archives: the same sources are compiled once; other sources, and
modified files, are a miss."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from webnn_vk.codegen.archive import ShaderArchive
from webnn_vk.gpu import nanoseconds
from webnn_vk.support import source_tree
from webnn_vk.tools import archive_cache, shader_archive

KEY = bytes(range(32))


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """A new cache; the folder in it for archives."""
    monkeypatch.setenv("WEBNN_VK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / archive_cache.FOLDER


@pytest.fixture
def sources(tmp_path, monkeypatch) -> Path:
    """A copy of the package as in a wheel, which the build takes for its own."""
    folder = tmp_path / "webnn_vk"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "webnn_vk", folder, ignore=ignore)
    for name in source_tree.FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    own = {"webnn_vk": folder, **{name: folder / name for name in source_tree.FOLDERS}}
    monkeypatch.setattr(shader_archive, "_sources", lambda: own)
    return folder


@pytest.fixture
def build(tmp_path, monkeypatch, capsys) -> Callable[[], tuple[bytes, bool]]:
    """Makes an archive of one module; returns it, and whether the cache had it."""
    monkeypatch.setattr(shader_archive, "specs", lambda *_: [nanoseconds.spec()])
    monkeypatch.setattr(shader_archive, "_planned", lambda: ())  # all others take half a minute
    monkeypatch.setenv("WEBNN_VK_GLSLANG", "auto")
    if shader_archive.find_compiler() is None:
        pytest.skip("no GLSL compiler on this machine")

    def make() -> tuple[bytes, bool]:
        assert shader_archive.main([str(tmp_path)]) == 0
        *_, said = capsys.readouterr().out.splitlines()
        assert said.startswith("1 modules, ")
        with open(tmp_path / "pack.bin", "rb") as file:
            return file.read(), "from the cache" in said

    return make


def test_a_second_build_takes_the_first_ones_pack(build, cache, sources, tmp_path):
    first, kept = build()
    assert not kept
    (tmp_path / "pack.bin").unlink()
    assert build() == (first, True)
    assert len(ShaderArchive(tmp_path / "pack.bin")) == 1
    if os.name == "posix":
        assert (tmp_path / "pack.bin").stat().st_mode & 0o777 == 0o644
        (file,) = archive_cache.files(cache)
        assert file.stat().st_mode & 0o777 == 0o600 and cache.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("file", [
    "shaders/lib/prelude.glsl.j2", "shaders/templates.json", "compiler/kernels/matmul.py",
    "compiler/kernels/new.py",
])
def test_changed_sources_are_compiled_again(build, cache, sources, file):
    build()
    with open(sources / file, "a") as changed:
        changed.write(" ")
    assert build()[1] is False
    assert build()[1] is True
    # Shaders have nothing of these.
    (sources / "profiler" / "page.css").write_text("")
    (sources / "examples" / "new.json").write_text("")
    assert build()[1] is True


def test_a_clone_and_its_wheel_have_one_pack(sources):
    """The location of the folders makes no difference."""
    found = archive_cache.key(shader_archive._sources(), ["x"])
    beside = {name: ROOT / name for name in ("webnn_vk", *source_tree.FOLDERS)}
    assert archive_cache.key(beside, ["x"]) == found
    (sources / "shaders" / "new.comp.j2").touch()
    assert archive_cache.key(shader_archive._sources(), ["x"]) != found


def test_the_clones_sources_are_those_of_this_process():
    names = ("webnn_vk", *source_tree.FOLDERS)
    assert shader_archive._sources() == {name: ROOT / name for name in names}


def test_another_compiler_compiles_again(build, cache, sources, monkeypatch):
    build()
    own = shader_archive.find_compiler()

    class Other:
        compile, identity, version = own.compile, own.identity, "glslang 99"

    with monkeypatch.context() as patch:
        patch.setattr(shader_archive, "find_compiler", Other)
        assert build()[1] is False
    assert build()[1] is True


def test_a_renamed_file_is_another_key(tmp_path):
    def key(name: str, *made_with: str) -> bytes:
        return archive_cache.key({"webnn_vk": tmp_path / name}, made_with)

    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.py").write_text("x")
        (tmp_path / name / f"{name}.css").write_text(name)
    (tmp_path / "a" / "c.py").write_text("")
    keys = {key("a", "x"), key("a", "x", ""), key("a", "y"), key("b", "x")}
    (tmp_path / "a" / "a.py").rename(tmp_path / "a" / "b.py")
    keys.add(key("a", "x"))
    (tmp_path / "a" / "c.py").unlink()
    assert len(keys) == 5
    (tmp_path / "a" / "b.css").touch()
    assert key("a", "x") == key("b", "x")


def damage(path: Path, how: str) -> None:
    data = path.read_bytes()
    path.unlink()
    match how:
        case "cut":
            path.write_bytes(data[:-1])
        case "empty":
            path.touch()
        case "longer":
            path.write_bytes(data + b"x")
        case "a bit":
            path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        case "header":
            path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
        case "another's":
            path.write_bytes(data.replace(KEY, bytes(32)))
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)


DAMAGES = ["cut", "empty", "longer", "a bit", "header", "another's", "folder"]
DAMAGES += ["fifo"] if hasattr(os, "mkfifo") else []


@pytest.mark.parametrize("how", DAMAGES)
def test_a_bad_file_is_a_miss(cache, how):
    archive_cache.put(KEY, b"a pack")
    assert archive_cache.get(KEY) == b"a pack"
    (path,) = archive_cache.files(cache)
    damage(path, how)
    assert archive_cache.get(KEY) is None
    archive_cache.put(KEY, b"again")
    if how != "folder":  # that stays where it is
        assert archive_cache.get(KEY) == b"again"
    assert not list(cache.glob(".tmp-*"))


@pytest.mark.skipif(os.name != "posix", reason="owners and modes of POSIX")
def test_a_folder_that_others_write_to_is_not_used(cache):
    archive_cache.put(KEY, b"a pack")
    cache.chmod(0o777)
    assert archive_cache.get(KEY) is None
    archive_cache.put(bytes(32), b"other")
    assert len(list(archive_cache.files(cache))) == 1


def test_the_latest_are_kept(cache):
    keys = [bytes([n]) * 32 for n in range(archive_cache.KEPT + 2)]
    for n, key in enumerate(keys):
        archive_cache.put(key, key)
        (path,) = cache.glob(f"{key.hex()}*")
        os.utime(path, (n, n))
        if n:
            assert archive_cache.get(keys[0]) == keys[0]  # of use, so it stays
    kept = [key for key in keys if archive_cache.get(key)]
    assert kept == [keys[0], *keys[-archive_cache.KEPT + 1:]]


@pytest.mark.parametrize("setting", ["off", "~no-such-user/x"])
def test_without_a_cache(setting, monkeypatch):
    monkeypatch.setenv("WEBNN_VK_CACHE", setting)
    archive_cache.put(KEY, b"a pack")
    assert archive_cache.folder() is None and archive_cache.get(KEY) is None
