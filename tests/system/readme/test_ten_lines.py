"""The ten lines of the API in a script (test_readme), in a notebook, and under asyncio."""

import ast
import asyncio
import builtins
import inspect
import subprocess
import sys
import threading
import types

import numpy as np
import pytest

import webnn_vk as webnn
from tests.support.discriminating import assert_allclose
from tests.system.readme.test_readme import SNIPPETS

CELL = SNIPPETS[0]
AWAITING = CELL.replace("webnn.ml.create_context().result()", "await webnn.ml.create_context()")
AWAITING = AWAITING.replace('builder.build({"C": c}).result()', 'await builder.build({"C": c})')


class Notebook:
    """Runs cells as ipykernel does: in coroutines of a running event loop, with `await` allowed at
    the top level."""

    def __init__(self):
        self.names = {"__builtins__": builtins}
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    def run(self, cell):
        return asyncio.run_coroutine_threadsafe(self._cell(cell), self.loop).result(60)

    async def _cell(self, cell):
        code = compile(cell, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = types.FunctionType(code, self.names)()
        if inspect.iscoroutine(result):
            await result

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(60)
        self.loop.close()


@pytest.fixture
def notebook():
    kernel = Notebook()
    yield kernel
    kernel.close()


@pytest.mark.filterwarnings("ignore:webnn_vk. no GPU")  # only for software Vulkan, as intended
@pytest.mark.parametrize("cell", [CELL, AWAITING], ids=["result", "await"])
def test_notebook(notebook, capsys, cell):
    notebook.run(cell)
    notebook.run("print(graph.outputs['C'].shape)")
    assert capsys.readouterr().out == "[[1. 1.]\n [1. 1.]]\n(2, 2)\n"


def test_awaiting_cell_awaits():
    assert AWAITING.count("await ") == 2 and ".result()" not in AWAITING


def test_asyncio():
    async def main():
        context = await webnn.ml.create_context(accelerated=False)
        builder = webnn.MLGraphBuilder(context)
        a = builder.input("A", {"data_type": "float32", "shape": [2, 2]})
        b = builder.input("B", {"data_type": "float32", "shape": [2, 2]})
        c = builder.add(builder.mul(a, builder.constant("float32", 0.2)), b, label="C")
        graph = await builder.build({"C": c})
        tensors = {
            name: await context.create_tensor(
                {"data_type": "float32", "shape": [2, 2], "writable": True, "readable": True}
            )
            for name in "ABC"
        }
        context.write_tensor(tensors["A"], np.ones((2, 2), np.float32))
        context.write_tensor(tensors["B"], np.full((2, 2), 0.8, np.float32))
        context.dispatch(graph, {"A": tensors["A"], "B": tensors["B"]}, {"C": tensors["C"]})
        return await context.read_tensor(tensors["C"])

    assert_allclose(asyncio.run(main()), np.ones((2, 2)), rtol=1e-6)


def test_script_ends_by_itself():
    """No thread of the library keeps the interpreter alive."""
    done = subprocess.run([sys.executable, "-c", CELL], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "[[1. 1.]\n [1. 1.]]\n"), done.stderr
