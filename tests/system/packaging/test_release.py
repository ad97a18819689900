"""scripts/release: the same bytes twice, and both packages run where nothing else is installed. It
builds each twice, with --explore only."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile

import pytest

import webnn_vk
from tests.support.paths import ROOT

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def released(wheelhouse, tmp_path_factory):
    """Folder of the release, and the script's output. Without a network: pip finds its packages in
    the wheelhouse."""
    out = tmp_path_factory.mktemp("release")
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "release", "--dirty", "--no-isolation", "--out", out],
        capture_output=True, text=True,
        env={**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheelhouse)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out, done.stdout


@pytest.mark.explore
def test_both_packages_are_made_and_told(released):
    out, printed = released
    names = {path.name for path in out.iterdir()}
    version = webnn_vk.__version__
    assert names == {f"webnn_vk-{version}.tar.gz", f"webnn_vk-{version}-py3-none-any.whl"}
    assert set(re.findall(r"^[0-9a-f]{64}  (\S+)$", printed, re.MULTILINE)) == names


@pytest.mark.explore
def test_the_source_archive_builds_the_same_wheel_and_has_no_traces(released):
    out, _ = released
    (archive,) = out.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        members = source.getmembers()
    assert len({m.mtime for m in members}) == 1
    assert {(m.uid, m.gid, m.uname, m.gname) for m in members} == {(0, 0, "", "")}
    names = {m.name.partition("/")[2] for m in members}
    assert {"README.md", "LICENSE", "codegen/spec.py", "shaders/copy.comp.j2"} <= names
    assert not [name for name in names if name.endswith((".pyc", "pack.bin"))]
    (wheel,) = out.glob("*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())
    assert {n for n in names if n.startswith("webnn_vk/") and not n.endswith("/")} - {
        n for n in names if any(o.startswith(n + "/") for o in names)
    } <= inside


def test_a_version_without_changes_is_refused(tmp_path):
    text = (ROOT / "scripts" / "release").read_text(encoding="utf-8")
    for name, content in {
        "scripts/release": text, "CHANGELOG.md": "## [1.0.0]\n",
        "webnn_vk/__init__.py": '__version__ = "1.0.1"\n',
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, tmp_path / "scripts" / "release"], capture_output=True, text=True
    )
    assert done.returncode == 1 and "CHANGELOG.md has no section [1.0.1]" in done.stderr
