"""No home folder, no disk space, no file descriptors, and caches with arbitrary contents."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest


def sparse(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(1 << 40)


ENTRIES = {
    "a FIFO": lambda path: os.mkfifo(path),
    "a folder": lambda path: path.mkdir(),
    "a folder with something in it": lambda path: (path / "x").mkdir(parents=True),
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path),
    "a dangling link": lambda path: path.symlink_to("nowhere"),
    "an unreadable file": lambda path: (path.write_bytes(b"x"), path.chmod(0)),
    "a sparse file of 1 TB": sparse,
    "an empty file": lambda path: path.touch(),
}


@pytest.fixture
def environment(tmp_path: Path, vulkan: None) -> dict[str, str]:
    return {"WEBNN_VK_CACHE": str(tmp_path / "cache"), "WEBNN_VK_DEVICE": "vulkan"}


@pytest.mark.sample(0.4)
@pytest.mark.parametrize("kind", ENTRIES)
def test_anything_as_a_cache_entry(child, environment, kind):
    """A cache entry of another kind is a cache miss. It is never waited for, and the rest of the
    cache stays in use."""
    code = '''
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    context = ml.create_context().result(60)
    check(context)
print(context._state.device.shaders.origins, said(caught))
from webnn_vk.codegen.disk_cache import cache_state
print(cache_state())
'''
    folder = Path(environment["WEBNN_VK_CACHE"], "spirv")
    child(code, environment=environment)
    (entry,) = folder.glob("*.spv")
    entry.unlink()
    ENTRIES[kind](entry)
    printed = child(code, environment=environment)
    assert "'compiler': 1" in printed and "} []" in printed and "'problem': ''" in printed
    if "folder" not in kind:
        # It is replaced by a correct entry.
        assert entry.is_file() and not entry.is_symlink() and entry.stat().st_size > 1000
    else:
        assert entry.is_dir()  # not ours to remove


@pytest.mark.parametrize("kind", ["FIFO", "device", "folder"])
def test_anything_as_a_pack(child, environment, tmp_path, kind):
    path = tmp_path / "pack"
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    printed = child('''
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    check(ml.create_context().result(60))
print(said(caught))
''', environment={**environment, "WEBNN_VK_PACK": str(path)})
    assert "the shader archive is not used" in printed


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes a user without a passwd entry")
def test_a_user_without_a_home(child, environment, tmp_path):
    """As in containers started with --user 12345: no HOME, no entry in /etc/passwd."""
    work = tmp_path / "work"
    work.mkdir()
    for folder in (work, tmp_path, *list(tmp_path.parents)[:3]):
        if str(folder).startswith("/tmp/"):
            folder.chmod(0o777)
    printed = child(f'''
# Python's own files may be out of that user's reach: what is needed of them is loaded before.
with ml.create_context(settings=webnn.Settings(device="vulkan", cache="off")).result(60) as first:
    check(first)
os.chdir({str(work)!r})
os.setgid(54321)
os.setuid(54321)
import pwd
try:
    pwd.getpwuid(os.getuid())
    raise SystemExit("the user exists")
except KeyError:
    pass
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(2):
        check(ml.create_context().result(60))
print(said(caught))
''', environment={"WEBNN_VK_DEVICE": "vulkan", "WEBNN_VK_CACHE": None, "HOME": None,
                  "XDG_CACHE_HOME": None, "WEBNN_VK_DUMP_SPIRV": None})
    assert printed.count("no home directory") == 1
    assert "WEBNN_VK_CACHE can name a folder" in printed
    assert list(work.iterdir()) == []  # no folder called "~"


def test_a_limit_on_the_size_of_files(child, environment):
    """With RLIMIT_FSIZE, like a full disk quota: nothing is cached, everything works."""
    printed = child('''
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
restore = lower(resource.RLIMIT_FSIZE, 512)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    context = ml.create_context().result(60)
    check(context)
print(said(caught), os.listdir(os.environ["WEBNN_VK_CACHE"] + "/spirv"))
restore()
with ml.create_context().result(60) as context:
    check(context)
print(len(os.listdir(os.environ["WEBNN_VK_CACHE"] + "/spirv")))
''', environment={**environment, "WEBNN_VK_DUMP_SPIRV": None})
    assert printed.split("\n")[:2] == ["[] []", "1"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_a_full_disk(child, environment, tmp_path):
    """A full file system of 64 kB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder])
    if mounted.returncode:
        pytest.skip("this container may not mount")
    try:
        cache = folder / "cache" / "spirv"
        cache.mkdir(parents=True)
        for each in (cache.parent, cache):
            each.chmod(0o700)
        (folder / "rest").write_bytes(b"x" * (60 << 10))
        printed = child('''
context = ml.create_context().result(60)
check(context)
print(os.listdir(os.environ["WEBNN_VK_CACHE"] + "/spirv"))
''', environment={**environment, "WEBNN_VK_CACHE": str(cache.parent)})
        assert printed.strip() in ("[]", "")
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("left", range(6))
def test_no_descriptors(child, environment, left):
    """With ``left`` free file descriptors while a context is created and a graph is built: each
    call succeeds or names what is missing, and all calls succeed once descriptors are free again.
    """
    printed = child(f'''
LEFT = {left}
class Short:
    def __enter__(self):
        self.restore, self.held = lower(resource.RLIMIT_NOFILE, 200), []
        try:
            while True:
                self.held.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            pass
        for _ in range(LEFT):
            os.close(self.held.pop())
    def __exit__(self, *_):
        for descriptor in self.held:
            os.close(descriptor)
        self.restore()

first = ml.create_context().result(60)
check(first)  # what is loaded once is loaded
warnings.simplefilter("ignore")
for _ in range(2):
    with Short():
        try:
            context = ml.create_context().result(60)
        except webnn.DOMException as error:
            print("context", type(error).__name__)
            context = None
    check(first)
    if context is not None:
        with Short():
            try:
                graph = build(context).result(60)
            except webnn.OperationError as error:
                print("build", error)
                graph = None
            check(first)
        check(context, graph)
        context.destroy()
check(ml.create_context().result(60)).destroy()
print("well", flush=True)
''', environment=environment)
    assert printed.rstrip().endswith("well")
