"""The store of tuned schedules: what it keeps, what it finds again, and what it ignores."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.profiles import stored_profile
from webnn_vk.codegen import template_files
from webnn_vk.compiler.kernels import Schedule
from webnn_vk.runtime.tuning import store
from webnn_vk.runtime.tuning.store import (
    Entry,
    TunedStore,
    damaged_schedules,
    entry_name,
    identity,
    schedule_files,
    templates_hash,
)
from webnn_vk.support.processor import processor

PROFILE = stored_profile("nvidia_ampere")
TILE = Schedule("matmul", (("LX", 8), ("LY", 1), ("TM", 16), ("TN", 8)), "texel")
ENTRY = Entry("matmul", "Product(1)", TILE, 1e-3, 2e-3, "timestamps")
KEY = ("matmul", "Product(1)")


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """The folder with one entry in it."""
    folder = tmp_path / "tuned"
    TunedStore(folder, PROFILE).put(ENTRY)
    return folder


@pytest.fixture(autouse=True)
def notices() -> Iterator[list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught


def file(folder: Path) -> Path:
    (path,) = schedule_files(folder)
    return path


def test_what_is_kept_is_found_again(kept: Path, notices: list) -> None:
    found = TunedStore(kept, PROFILE)
    assert found and found.get(KEY) == TILE
    assert found.entry(*KEY) == ENTRY
    assert found.get(("matmul", "Product(2)")) is None
    assert found.get(("conv", "Product(1)")) is None
    assert dict(found) == {KEY: TILE} and len(found) == 1
    assert not notices
    assert file(kept).stat().st_mode & 0o777 == 0o600 and kept.stat().st_mode & 0o777 == 0o700


def test_a_later_entry_replaces_an_earlier_one(kept: Path) -> None:
    plain = Schedule("matmul", (("LX", 8),))
    TunedStore(kept, PROFILE).put(Entry(*KEY, plain, 1.0, 1.0, "submits"))
    assert TunedStore(kept, PROFILE)[KEY] == plain
    assert len(schedule_files(kept)) == 1


def test_without_a_folder_it_lasts_as_long_as_the_process(tmp_path: Path) -> None:
    nothing = TunedStore(None, PROFILE)
    assert not nothing and nothing.get(KEY) is None
    nothing.put(ENTRY)
    assert nothing and nothing[KEY] == TILE
    assert not TunedStore(tmp_path / "not made yet", PROFILE)
    assert not (tmp_path / "not made yet").exists()


# -- the key
def test_another_device_or_driver_version_finds_nothing(kept: Path) -> None:
    for change in (
        {"driver_version": PROFILE.driver_version + ".1"}, {"driver_name": "another"},
        {"name": "another"}, {"device_id": 7}, {"features": PROFILE.features - {"float16"}},
    ):
        assert TunedStore(kept, PROFILE.replace(**change)).get(KEY) is None, change
    # An entry without a time changes nothing.
    assert TunedStore(kept, PROFILE.replace(uuid="another", note="x"))[KEY] == TILE


def test_the_key_changes_with_each_of_its_parts() -> None:
    usual = identity(PROFILE), "hash", "matmul", "Product(1)"
    names = {entry_name(*usual)}
    for number in range(4):
        names.add(entry_name(*[t + "x" * (i == number) for i, t in enumerate(usual)]))
    assert len(names) == 5
    newer = identity(PROFILE.replace(driver_version="2"))
    assert entry_name(newer, *usual[1:]) not in names
    software = stored_profile("llvmpipe")
    assert processor() in identity(software)


def test_another_template_finds_nothing(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shaders = tmp_path / "shaders"
    (shaders / "lib").mkdir(parents=True)
    for path in template_files.SHADERS.rglob("*.j2"):
        target = shaders / path.relative_to(template_files.SHADERS)
        target.write_bytes(path.read_bytes())
    before = templates_hash("matmul"), templates_hash("conv")

    def now() -> tuple[str, str]:
        templates_hash.cache_clear()
        return templates_hash("matmul"), templates_hash("conv")

    monkeypatch.setattr(template_files, "SHADERS", shaders)
    try:
        assert now() == before
        template = shaders / "matmul_tiled.comp.j2"
        template.write_text(template.read_text() + "\n")
        matmul, conv = now()
        assert matmul != before[0] and conv == before[1]
        assert TunedStore(kept, PROFILE).get(KEY) is None
        library = shaders / "lib" / "vectors.glsl.j2"
        library.write_text(library.read_text() + "\n")
        assert now()[1] != conv
    finally:
        monkeypatch.undo()
        assert now() == before


# -- what is ignored
DAMAGE = {
    "empty": (lambda text: b"", "not JSON"),
    "cut": (lambda text: text[:-20], "not JSON"),
    "no object": (lambda text: b"[1]", "no tuned schedule"),
    "another file": (lambda text: b'{"format": "x"}', "no tuned schedule"),
    "another version": (lambda text: text.replace(b'"version": 1', b'"version": 2'), "version 2"),
    "another number": (lambda text: text.replace(b"16", b"17"), "damaged"),
    "another kernel": (lambda text: text.replace(b'"matmul"', b'"winograd"'), "damaged"),
    "deep": (lambda text: b"[" * 100_000, "."),
    "large": (lambda text: text + b" " * (1 << 17), "bytes"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_what_is_damaged_is_ignored_with_a_notice(kept: Path, notices: list, name: str) -> None:
    change, reason = DAMAGE[name]
    path = file(kept)
    path.write_bytes(change(path.read_bytes()))
    assert TunedStore(kept, PROFILE).get(KEY) is None
    (notice,) = notices
    assert issubclass(notice.category, RuntimeWarning)
    text = str(notice.message)
    assert f"the tuned schedule {path} is ignored" in text and reason in text
    assert list(damaged_schedules(kept)) == [path.name]
    TunedStore(kept, PROFILE).put(ENTRY)
    assert TunedStore(kept, PROFILE)[KEY] == TILE and damaged_schedules(kept) == {}


def test_an_entry_of_another_problem_is_ignored(kept: Path, notices: list) -> None:
    """A file under another entry's name: copied by hand, or planted."""
    mine = TunedStore(kept, PROFILE)
    mine.put(Entry("matmul", "Product(2)", TILE, 1.0, 1.0, "timestamps"))
    first = kept / entry_name(identity(PROFILE), templates_hash("matmul"), *KEY)
    (other,) = set(schedule_files(kept)) - {first}
    os.replace(other, first)
    assert TunedStore(kept, PROFILE).get(KEY) is None
    assert "it is another problem's" in str(notices[0].message)


def test_a_schedule_that_is_none(kept: Path) -> None:
    path = file(kept)
    data = json.loads(path.read_bytes())
    for wrong in ({"kernel": 1, "numbers": [], "load": "texel"},
                  {"kernel": "x", "numbers": [["LX", 1.5]], "load": "texel"},
                  {"kernel": "x", "numbers": [["LX", True]], "load": "texel"}, "matmul", None):
        members = {n: v for n, v in data.items() if n not in ("format", "version", "digest")}
        members["schedule"] = wrong
        # Even with a correctly computed hash.
        digest = store._digest(members)
        path.write_text(json.dumps({**data, **members, "digest": digest}))
        assert TunedStore(kept, PROFILE).get(KEY) is None


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="folders have no owner here")
def test_a_folder_that_others_may_write_to_is_not_used(kept: Path, notices: list) -> None:
    kept.chmod(0o777)
    assert TunedStore(kept, PROFILE).get(KEY) is None
    assert "others may write to it" in str(notices[0].message)


def test_a_folder_that_can_t_be_made(tmp_path: Path, notices: list) -> None:
    place = tmp_path / "file"
    place.write_bytes(b"")
    found = TunedStore(place / "tuned", PROFILE)
    found.put(ENTRY)
    assert found[KEY] == TILE
    assert any("can't be kept" in str(notice.message) for notice in notices)
