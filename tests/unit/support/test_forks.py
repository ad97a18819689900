"""Blocks that forks wait for."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from webnn_vk.support import forks

KINDS = ("modules", "glslang")


def test_blocks_of_two_kinds_overlap() -> None:
    inside, leave = threading.Event(), threading.Event()

    def compile_() -> None:
        with forks.undisturbed("glslang"):
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=compile_)
    thread.start()
    assert inside.wait(60)
    entered = []
    with forks.undisturbed():
        entered.append(thread.is_alive())
    leave.set()
    thread.join(60)
    assert entered == [True]


@pytest.mark.skipif(not hasattr(forks.os, "fork"), reason="no forks on this system")
@pytest.mark.parametrize("kind", KINDS)
def test_a_fork_waits_for_blocks_of_every_kind(kind: str) -> None:
    code = f"""
import os, threading, time
from webnn_vk.support import forks
forks.PATIENCE = 60
inside, ended = threading.Event(), []
def work():
    with forks.undisturbed({kind!r}):
        inside.set()
        time.sleep(0.3)
        ended.append(None)
threading.Thread(target=work).start()
inside.wait(60)
clean = []
forks.register(clean.append)
child = os.fork()
if not child:
    with forks.undisturbed("modules"), forks.undisturbed("glslang"):
        os._exit(7 if (len(ended), clean) == (1, [True]) else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "7\n"
