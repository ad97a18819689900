"""The store: shader archive, cache, compiler; damaged and foreign files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bench.isa.catalogue import catalogue
from tests.support.kernels import COPY, templates
from webnn_vk.codegen import archive
from webnn_vk.codegen import store as store_module
from webnn_vk.codegen.archive import ArchiveError, ShaderArchive, write_archive
from webnn_vk.codegen.compiler import find_compiler
from webnn_vk.codegen.disk_cache import DiskCache
from webnn_vk.codegen.glsl import CompilerUnavailable, GlslError, Source
from webnn_vk.codegen.spec import Buffer, KernelSpec, Param
from webnn_vk.codegen.spirv import info
from webnn_vk.codegen.store import (
    INTRINSICS_EXTENSION,
    MATRIX_EXTENSION,
    ShaderStore,
    ShaderUnavailable,
    address,
    build_pack,
    cache_key,
    quick_name,
)
from webnn_vk.compiler.kernels import MATRIX_FEATURES
from webnn_vk.support.environment import cache_folder


class Counting:
    """A compiler that counts batches and shaders. ``prepared``: how often it was prepared."""

    def __init__(self, identity: str = "counting 1") -> None:
        self._own = find_compiler()
        self.identity = identity
        self.batches: list[int] = []
        self.prepared = 0

    @property
    def version(self) -> str:
        return self.identity

    def prepare(self) -> None:
        self.prepared += 1

    def compile(self, sources: Sequence[Source]) -> list[bytes | GlslError]:
        self.batches.append(len(sources))
        return self._own.compile(sources)


TEMPLATES = {
    "copy": COPY, "broken": "{% include 'lib/prelude.glsl.j2' %}\nvoid main() { x; }\n",
}


@pytest.fixture(autouse=True)
def _templates() -> Iterator[None]:
    if find_compiler() is None:
        pytest.skip("no GLSL compiler on this machine")
    with templates(**TEMPLATES):
        yield


def _spec(data_type: str = "float32", *features: str) -> KernelSpec:
    return KernelSpec(
        "copy.comp.j2", (Buffer("a", data_type), Buffer("out", data_type, "w")), (Param("n"),),
        options=(("vectors", False),), features=frozenset(features),
    )


SPECS = [_spec("float32"), _spec("float16"), _spec("int8"), _spec("float16", "float16")]


def _entries(folder: Path) -> list[Path]:
    return sorted((folder / "spirv").iterdir())


def test_one_batch_then_memory_then_cache(tmp_path: Path) -> None:
    compiler = Counting()
    store = ShaderStore(tmp_path, pack=None, compiler=compiler)
    first = store.get([*SPECS, SPECS[0]])
    assert compiler.batches == [4] and first[0] is first[4]
    assert store.get(SPECS) == first[:4] and compiler.batches == [4]
    assert len(_entries(tmp_path)) == 4
    other = ShaderStore(tmp_path, pack=None, compiler=compiler)
    assert other.get(SPECS) == first[:4] and compiler.batches == [4]
    assert other.origins == {"pack": 0, "cache": 4, "compiler": 0}


def test_a_compiler_is_prepared_for_missing_modules_alone(tmp_path: Path) -> None:
    compiler, path = Counting(), tmp_path / "archive"
    build_pack(SPECS[:2], path)
    store = ShaderStore(tmp_path, pack=path, compiler=compiler)
    store.get(SPECS[:2])
    assert (compiler.prepared, compiler.batches) == (0, [])
    store.get(SPECS)
    assert (compiler.prepared, compiler.batches) == (2, [2])
    cached = Counting()
    ShaderStore(tmp_path, pack=path, compiler=cached).get(SPECS)
    assert (cached.prepared, cached.batches) == (0, [])


def test_only_so_many_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The most recently used ones stay, however many are requested at once; the others come from
    the cache."""
    monkeypatch.setattr(store_module, "MAX_REMEMBERED", 2)
    compiler = Counting()
    store = ShaderStore(tmp_path, pack=None, compiler=compiler)
    modules = store.get(SPECS)
    assert store.get(SPECS[2:]) == modules[2:]
    assert store.origins == {"pack": 0, "cache": 0, "compiler": 4}
    assert store.get([SPECS[2], SPECS[0]]) == [modules[2], modules[0]]  # 3 is forgotten, not 2
    assert store.get([SPECS[2], SPECS[3]]) == modules[2:]
    assert store.origins == {"pack": 0, "cache": 2, "compiler": 4}
    assert compiler.batches == [4]


def test_features_of_the_address() -> None:
    """Float controls are not part of the text but of the module."""
    plain, preserving = _spec(), _spec("float32", "nan_preserve_f32")
    assert address(plain) != address(preserving)
    assert address(_spec("float32", "int8")) == address(plain)
    one, other = ShaderStore(None, pack=None).get([plain, preserving])
    assert info(other).capabilities - info(one).capabilities == {"SignedZeroInfNanPreserve"}


def test_another_compiler_compiles_again_and_none_takes_any(tmp_path: Path) -> None:
    old, new = Counting("one"), Counting("two")
    ShaderStore(tmp_path, pack=None, compiler=old).get(SPECS)
    ShaderStore(tmp_path, pack=None, compiler=new).get(SPECS[:1])
    assert (old.batches, new.batches) == ([4], [1])
    without = ShaderStore(tmp_path, pack=None, compiler=None)
    assert all(map(without.available, SPECS))
    assert len(without.get(SPECS)) == 4
    assert not without.has_compiler and not without.available(_spec("uint8"))
    with pytest.raises(ShaderUnavailable, match="no GLSL compiler.*copy.comp.j2.*glslang-tools"):
        without.get([_spec("uint8")])


def _damage(kind: str, data: bytes) -> bytes:
    match kind:
        case "empty":
            return b""
        case "truncated":
            return data[:-8]
        case "half":
            return data[: len(data) // 2]
        case "longer":
            return data + b"\0\0\0\0"
        case "flipped in the module":
            return data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]
        case "wrong magic":
            return b"WNNVKSPX" + data[8:]
        case "other format":
            return data[:8] + b"\xff\0\0\0" + data[12:]
        case "other size":
            return data[:12] + b"\xff\xff\xff\x7f" + data[16:]
        case "other address":
            return data[:16] + bytes([data[16] ^ 1]) + data[17:]
    raise AssertionError(kind)


@pytest.mark.parametrize(
    "kind",
    ["empty", "truncated", "half", "longer", "flipped in the module", "wrong magic",
     "other format", "other size", "other address"],
)
def test_a_bad_entry_is_a_miss_and_is_replaced(tmp_path: Path, kind: str) -> None:
    compiler = Counting()
    (module,) = ShaderStore(tmp_path, pack=None, compiler=compiler).get(SPECS[:1])
    (entry,) = _entries(tmp_path)
    good = entry.read_bytes()
    entry.write_bytes(_damage(kind, good))
    assert not ShaderStore(tmp_path, pack=None, compiler=None).available(SPECS[0])
    assert ShaderStore(tmp_path, pack=None, compiler=compiler).get(SPECS[:1]) == [module]
    assert compiler.batches == [1, 1]
    assert entry.read_bytes() == good and _entries(tmp_path) == [entry]


def test_an_entry_that_is_no_spirv_is_a_miss(tmp_path: Path) -> None:
    """Even with a correct hash, written by anyone."""
    store = ShaderStore(tmp_path, pack=None, compiler=Counting())
    store.cache.put(cache_key(SPECS[0]), "counting 1", b"\0" * 64)
    assert len(_entries(tmp_path)) == 1
    assert not ShaderStore(tmp_path, pack=None, compiler=None).available(SPECS[0])


def test_self_tests_that_passed_are_known_later(tmp_path: Path) -> None:
    first, second = (bytes([number]) * 32 for number in range(2))
    cache = DiskCache(tmp_path)
    assert not cache.has_passed(first)
    cache.keep_passed(first)
    again = DiskCache(tmp_path)
    assert again.has_passed(first) and not again.has_passed(second)
    (mark,) = tmp_path.glob("spirv/*.passed")
    mark.rename(mark.with_stem(second.hex()))
    assert not again.has_passed(first) and not again.has_passed(second), "another test's"


def test_without_a_usable_folder_no_self_test_has_passed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    for cache in (DiskCache(None), DiskCache(tmp_path / "file")):
        cache.keep_passed(b"0" * 32)
        assert not cache.has_passed(b"0" * 32)
    DiskCache(tmp_path).keep_passed(b"0" * 32)
    (tmp_path / "spirv").chmod(0o777)
    with pytest.warns(RuntimeWarning, match="others may write to it"):
        assert not DiskCache(tmp_path).has_passed(b"0" * 32)


def test_the_folder_is_private_and_a_public_one_is_not_used(tmp_path: Path) -> None:
    compiler = Counting()
    ShaderStore(tmp_path / "new", pack=None, compiler=compiler).get(SPECS[:1])
    folder = tmp_path / "new" / "spirv"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert _entries(tmp_path / "new")[0].stat().st_mode & 0o777 == 0o600
    folder.chmod(0o777)
    with pytest.warns(RuntimeWarning, match="others may write to it"):
        ShaderStore(tmp_path / "new", pack=None, compiler=compiler).get(SPECS[:1])
    assert compiler.batches == [1, 1]


def test_a_cache_that_cannot_be_written_only_costs_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    store = ShaderStore(tmp_path / "file", pack=None, compiler=Counting())
    assert len(store.get(SPECS)) == 4


def test_cache_folder_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEBNN_VK_CACHE", str(tmp_path / "here"))
    ShaderStore(pack=None).get(SPECS[:1])
    assert len(_entries(tmp_path / "here")) == 1
    monkeypatch.setenv("WEBNN_VK_CACHE", "off")
    assert cache_folder() is None
    monkeypatch.delenv("WEBNN_VK_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "webnn_vk"


def test_many_processes_write_the_same_entries(tmp_path: Path) -> None:
    code = (
        "import sys; from tests.unit.codegen.test_store import *\n"
        "with templates(**TEMPLATES):\n"
        "    modules = ShaderStore(sys.argv[1], pack=None).get(SPECS)\n"
        "    print(store_module.hashlib.sha256(b''.join(modules)).hexdigest())\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(4)
    ]
    printed = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0] * 4
    assert len(set(printed)) == 1
    assert len(_entries(tmp_path)) == 4
    assert all(map(ShaderStore(tmp_path, pack=None, compiler=None).available, SPECS))


def test_errors_of_the_compiler(tmp_path: Path) -> None:
    class Absent(Counting):
        def compile(self, sources: Sequence[Source]) -> list[bytes | GlslError]:
            raise CompilerUnavailable("not today")

    with pytest.raises(ShaderUnavailable, match="copy.comp.j2 does not work: not today"):
        ShaderStore(tmp_path, pack=None, compiler=Absent()).get(SPECS)
    broken = KernelSpec("broken.comp.j2", ())
    with pytest.raises(GlslError, match="broken.comp.j2: the GLSL does not compile"):
        ShaderStore(tmp_path, pack=None, compiler=Counting()).get([SPECS[0], broken])


# -- packs


def test_pack_serves_without_compiler_and_cache(tmp_path: Path) -> None:
    path = tmp_path / "x.pack"
    stats = build_pack([*SPECS, SPECS[0]], path)
    assert stats.modules == 4 and stats.size == path.stat().st_size
    store = ShaderStore(None, pack=path, compiler=None)
    modules = store.get(SPECS)
    assert store.origins == {"pack": 4, "cache": 0, "compiler": 0}
    assert modules == ShaderStore(None, pack=None).get(SPECS)
    assert stats.spirv_size == sum(map(len, modules)) > stats.size
    with pytest.raises(ShaderUnavailable):
        store.get([_spec("uint8")])
    pack = ShaderArchive(path)
    assert len(pack) == 4 and address(SPECS[1]) in pack and b"\0" * 32 not in pack
    assert pack.about["templates"] == ["copy.comp.j2"]
    assert "glsl" in pack.about["compiler"].lower()
    assert all(len(pack.get(key)) == size for key, size in pack.entries())


def test_what_a_pack_has_is_not_rendered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_pack(SPECS, tmp_path / "x.pack")
    expected = ShaderStore(None, pack=None).get(SPECS)

    def refuse(spec: KernelSpec) -> str:
        raise AssertionError(f"{spec.template} was rendered")

    store = ShaderStore(None, pack=tmp_path / "x.pack", compiler=None)
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "_renderer", lambda: refuse)
        assert store.get(SPECS) == expected
        with pytest.raises(AssertionError, match="was rendered"):
            store.get([_spec("uint8")])


def test_what_the_cache_has_is_not_rendered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until a template changes."""
    expected = ShaderStore(tmp_path, pack=None).get(SPECS)

    def refuse(spec: KernelSpec) -> str:
        raise AssertionError(f"{spec.template} was rendered")

    with monkeypatch.context() as patch:
        patch.setattr(store_module, "_renderer", lambda: refuse)
        store = ShaderStore(tmp_path, pack=None)
        assert store.get(SPECS) == expected
        assert store.origins["cache"] == len(SPECS)
        with (
            templates(copy=COPY + "// one more\n"),
            pytest.raises(AssertionError, match="was rendered"),
        ):
            ShaderStore(tmp_path, pack=None).get(SPECS)


def test_a_pack_of_other_templates_is_looked_up_by_text(tmp_path: Path) -> None:
    """A changed text is not served from an archive of the old text; an unchanged one still is."""
    build_pack(SPECS, tmp_path / "x.pack")
    expected = ShaderStore(None, pack=None).get(SPECS)
    names = set(map(quick_name, SPECS))
    with templates(copy=COPY, other="// one more"):
        assert names.isdisjoint(map(quick_name, SPECS))
        store = ShaderStore(None, pack=tmp_path / "x.pack", compiler=None)
        assert store.get(SPECS) == expected
    with templates(copy=COPY.replace("void main() {", "void main() {\n  uint other = P.n;")):
        changed = ShaderStore(None, pack=tmp_path / "x.pack", compiler=None)
        with pytest.raises(ShaderUnavailable):
            changed.get(SPECS)


def test_the_same_specs_give_the_same_pack(tmp_path: Path) -> None:
    build_pack(SPECS, tmp_path / "a")
    build_pack(SPECS[::-1], tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    write_archive({}, tmp_path / "empty", {})
    assert len(ShaderArchive(tmp_path / "empty")) == 0


def test_pack_comes_before_cache_and_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_pack(SPECS[:2], tmp_path / "x.pack")
    monkeypatch.setenv("WEBNN_VK_PACK", str(tmp_path / "x.pack"))
    compiler = Counting()
    store = ShaderStore(tmp_path, compiler=compiler)
    store.get(SPECS)
    assert compiler.batches == [2]
    assert store.origins == {"pack": 2, "cache": 0, "compiler": 2}


def test_damaged_packs(tmp_path: Path) -> None:
    path = tmp_path / "x.pack"
    build_pack(SPECS, path)
    good = path.read_bytes()
    for damaged in (b"", b"short", good[:200], b"X" + good[1:],
                    good[:100] + bytes([good[100] ^ 1]) + good[101:]):
        path.write_bytes(damaged)
        with pytest.raises(ArchiveError, match="x.pack"):
            ShaderArchive(path)
    with pytest.warns(RuntimeWarning, match="the shader archive is not used"):
        store = ShaderStore(None, pack=path, compiler=Counting())
    assert len(store.get(SPECS)) == 4
    with pytest.raises(ArchiveError):
        ShaderArchive(tmp_path / "missing")


def test_a_damaged_module_of_a_pack_is_a_miss(tmp_path: Path) -> None:
    path = tmp_path / "x.pack"
    build_pack(SPECS, path)
    good = path.read_bytes()
    modules = {key: ShaderArchive(path).get(key) for key, _ in ShaderArchive(path).entries()}
    harmed = 0
    for at in range(len(good) - 600, len(good), 7):
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x55]) + good[at + 1:])
        pack = ShaderArchive(path)
        found = [pack.get(key) for key in modules]
        assert all(f in (None, m) for f, m in zip(found, modules.values(), strict=True))
        harmed += found.count(None)
    assert harmed > 50
    path.write_bytes(good[: -len(good) // 4])
    assert None in map(ShaderArchive(path).get, modules)


def test_blocks_and_both_codecs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many modules over several blocks, also from a Python without lzma."""
    modules = {bytes([i]) * 32: bytes([i, i + 1, 7, 9]) * (1000 * i) for i in range(1, 60)}
    write_archive(modules, tmp_path / "lzma", {})
    monkeypatch.setattr(archive, "lzma", None)
    write_archive(modules, tmp_path / "zlib", {})
    with pytest.raises(ArchiveError, match="no lzma module"):
        ShaderArchive(tmp_path / "lzma")
    pack = ShaderArchive(tmp_path / "zlib")
    assert {key: pack.get(key) for key in modules} == modules
    monkeypatch.undo()
    for name in ("lzma", "zlib"):
        pack = ShaderArchive(tmp_path / name)
        assert {key: pack.get(key) for key in reversed(modules)} == modules


class KnowsNoMatrices(Counting):
    """A compiler as old as Debian's."""

    def compile(self, sources: Sequence[Source]) -> list[bytes | GlslError]:
        return [
            GlslError(source.name, "extension not supported", source.text)
            if MATRIX_EXTENSION in source.text else result
            for source, result in zip(sources, super().compile(sources), strict=True)
        ]


class KnowsNoIntrinsics(Counting):
    """A compiler without instructions by number."""

    def compile(self, sources: Sequence[Source]) -> list[bytes | GlslError]:
        return [
            GlslError(source.name, "extension not supported", source.text)
            if INTRINSICS_EXTENSION in source.text else result
            for source, result in zip(sources, super().compile(sources), strict=True)
        ]


def test_a_compiler_that_knows_no_intrinsics_offers_no_integer_dot_products(tmp_path):
    old, new = (
        ShaderStore(tmp_path, pack=None, compiler=compiler)
        for compiler in (KnowsNoIntrinsics(), Counting())
    )
    features = frozenset({"integer_dot_product"})
    by_dots = catalogue(features, "integer_product")[0]
    assert by_dots.features == features
    assert old.available(_spec()) and not old.available(by_dots)
    assert new.available(by_dots)
    assert old.available(replace(by_dots, features=frozenset()))


def test_a_compiler_that_knows_no_cooperative_matrices_offers_no_kernel_with_them(tmp_path):
    old, new = (
        ShaderStore(tmp_path, pack=None, compiler=compiler)
        for compiler in (KnowsNoMatrices(), Counting())
    )
    products = catalogue(MATRIX_FEATURES | {"float16"}, "matmul")
    by_matrices = next(spec for spec in products if "cooperative_matrix" in spec.features)
    assert old.available(_spec()) and not old.available(by_matrices)
    assert not old.available(by_matrices, compiling=False)
    if not new.available(by_matrices):
        pytest.skip("this machine's compiler knows no cooperative matrices either")
    # From an archive they are available nevertheless.
    build_pack([by_matrices], tmp_path / "pack.bin", Counting())
    old = ShaderStore(None, pack=tmp_path / "pack.bin", compiler=KnowsNoMatrices())
    assert old.available(by_matrices) and len(old.get([by_matrices])) == 1
    assert old.origins["pack"] == 1
