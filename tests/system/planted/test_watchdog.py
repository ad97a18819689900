"""A hang below Python ends its process and fails the test, shown with planted hangs."""

import os
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

HANG = """
import ctypes
import pytest

pytestmark = pytest.mark.timeout(5)


def hang():
    lock, c = ctypes.create_string_buffer(64), ctypes.PyDLL(None)
    c.pthread_mutex_lock(lock)
    c.pthread_mutex_lock(lock)  # with the interpreter's lock, and no signal wakes it


@pytest.fixture(scope="session")
def never_closed():
    yield
    hang()


def test_teardown(never_closed):
    pass


def test_call():
    hang()


def test_teardown_of_a_failure(never_closed):
    assert 1 == 2
"""


@pytest.mark.sample(0.34)
@pytest.mark.parametrize(
    ("name", "function"),
    [("test_call", "hang"), ("test_teardown", "never_closed"),
     ("test_teardown_of_a_failure", "never_closed")],
)
def test_the_process_says_where_and_ends(tmp_path, name, function):
    file = tmp_path / "test_hang.py"
    file.write_text(HANG)
    start = "import sys, pytest; from tests.support import watchdog; watchdog.GRACE = 1; "
    done = subprocess.run(
        [sys.executable, "-c", start + "sys.exit(pytest.main(sys.argv[1:]))", "-q", "-p",
         "no:cacheprovider", "-c", str(ROOT / "pyproject.toml"), "--confcutdir", str(ROOT),
         "-p", "tests.conftest", f"{file}::{name}"],
        capture_output=True, text=True, cwd=ROOT,
        env={**os.environ, "WEBNN_VK_DUMP_SPIRV": str(tmp_path)},
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Timeout (0:00:06)!" in done.stderr and f"in {function}" in done.stderr
    if name == "test_teardown_of_a_failure":
        assert "FAILED so far (call): " in done.stdout and "assert 1 == 2" in done.stdout
