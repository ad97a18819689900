"""The ends of a child without memory that our code doesn't cause."""

import pytest

from tests.system.stress.shortages import ended_by_others

CRASH = '''Fatal Python error: Segmentation fault

Thread 0x00007faa5d7fa6c0 (most recent call first):
  File "/venv/lib/python3.11/site-packages/onnx/helper.py", line 316 in make_model

Current thread 0x00007faa5bff76c0 (most recent call first):
  File "{}", line 1 in somewhere
  File "/source/webnn_vk/compiler/ir/onnx.py", line 88 in model_of
'''


@pytest.mark.parametrize(("path", "others"), [
    ("/venv/lib/python3.11/site-packages/onnx/helper.py", True),
    ("/source/webnn_vk/compiler/ir/onnx.py", True),
    ("/source/webnn_vk/driver/vulkan/pipelines.py", True),
    ("/source/webnn_vk/runtime/cpu.py", False),
    ("/source/webnn_vk/driver/vulkan/memory.py", False),
])
def test_where_it_crashed_decides(path, others):
    assert ended_by_others(CRASH.format(path)) == others


def test_a_thread_of_the_driver_is_none_of_ours():
    """The thread runs no Python, and faulthandler names no thread as the current one then."""
    assert ended_by_others(CRASH.replace("Current thread", "Thread").format("/source/a.py"))


@pytest.mark.parametrize(("said", "others"), [
    ("", False), ("MemoryError", False), ("Fatal Python error: Aborted", False),
    ("cannot allocate memory for thread-local data: ABORT", True),
    ("Exception ignored in thread started by: <object repr() failed>\nMemoryError: ", True),
    ("Exception ignored in thread started by: <function f at 0x7f>\nTraceback\nKeyError: 1", False),
])
def test_other_ends(said, others):
    assert ended_by_others(said) == others
