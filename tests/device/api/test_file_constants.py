"""Constants that are ranges of files (read-only ``np.memmap``): read at set-up, and shared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.contexts import open_context
from tests.support.discriminating import assert_allclose
from webnn_vk import MLDynamicDimension, MLGraphBuilder

ROWS, COLUMNS = 1024, 512
BYTES = 4 * ROWS * COLUMNS


@pytest.fixture
def path(tmp_path):
    numbers = np.random.default_rng(1).normal(size=(3, ROWS, COLUMNS)).astype(np.float32)
    made = tmp_path / "weights.bin"
    made.write_bytes(b"header of 16 byt" + numbers.tobytes())
    return made


def matrix(path: Path, number: int, mode: str = "r") -> np.ndarray:
    return np.memmap(path, np.float32, mode, 16 + number * BYTES, (ROWS, COLUMNS))


def resident(path: Path, kind: str = "Rss") -> int:
    """Bytes of a file's mappings: of all resident pages, or of the pages of another kind."""
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ")[0]:
            inside = line.endswith(str(path))
        elif inside and line.startswith(f"{kind}:"):
            total += int(line.split()[1]) * 1024
    return total


def product(context, weights, rows=4):
    builder = MLGraphBuilder(context)
    x = builder.input("x", {"data_type": "float32", "shape": [rows, weights.shape[0]]})
    return builder.build({"y": builder.matmul(x, builder.constant(weights))}).result()


def check(context, graph, weights):
    x = np.random.default_rng(2).normal(size=(4, weights.shape[0])).astype(np.float32)
    got = context.compute(graph, {"x": x})["y"]
    assert_allclose(got, x @ np.array(weights), rtol=1e-4, atol=1e-3)


def test_a_range_is_read_at_set_up(context, path):
    weights = matrix(path, 1)
    builder = MLGraphBuilder(context)
    x = builder.input("x", {"data_type": "float32", "shape": [4, ROWS]})
    constant = builder.constant(weights)
    assert resident(path) < BYTES / 8
    graph = builder.build({"y": builder.matmul(x, constant)}).result()
    check(context, graph, weights)


@pytest.mark.parametrize("part", [np.s_[:], np.s_[100:300], np.s_[-8:]])
def test_parts_of_a_range(context, path, part):
    weights = matrix(path, 2)[part]
    check(context, product(context, weights), weights)
    # Columns don't lie side by side: they are copied.
    columns = matrix(path, 2)[:, :64]
    check(context, product(context, columns), columns)


@pytest.mark.device
def test_graphs_share_a_range_on_the_device(vulkan, path):
    with open_context() as context:
        def in_use():
            context.fence().wait()
            return context._state.device.memory_in_use()

        first = product(context, matrix(path, 0))
        alone = in_use()
        assert alone >= BYTES
        second = product(context, matrix(path, 0))  # mapped once more
        assert in_use() - alone < BYTES / 8
        third = product(context, matrix(path, 1))
        assert in_use() - alone >= BYTES
        for number, graph in enumerate((first, second, third)):
            check(context, graph, matrix(path, number // 2))


def test_contexts_share_a_range(path):
    with open_context(device="cpu") as one, open_context(device="cpu") as other:
        graphs = [(context, product(context, matrix(path, 0))) for context in (one, other)]
        for context, graph in graphs:
            check(context, graph, matrix(path, 0))
            (data,) = (
                data for data in graph._executable.contents().values()
                if isinstance(data, np.ndarray) and data.nbytes == BYTES
            )
            assert not data.flags.owndata and not data.flags.writeable


@pytest.mark.device
def test_separate_devices_have_a_copy_each_of_the_same_pages(vulkan, path):
    """Graphs with named dimensions keep the constant for later compilations: as the file's pages,
    which no context copies in host memory."""
    draft = ["dynamic-shapes"]
    with open_context(experimental=draft) as one, open_context(experimental=draft) as other:
        assert one._state.device is not other._state.device
        graphs = []
        for context in (one, other):
            rows = MLDynamicDimension("rows", 4)
            graphs.append(product(context, matrix(path, 0), rows))
            check(context, graphs[-1], matrix(path, 0))
            context.fence().wait()
            assert BYTES <= context._state.device.memory_in_use() < BYTES * 9 / 8
        # Mapped, whether or not the system has the pages in memory now.
        assert resident(path, "Size") >= BYTES
        assert resident(path, "Anonymous") == resident(path, "Private_Dirty") == 0


def test_a_writable_map_is_copied(cpu_context, path):
    weights = matrix(path, 0, "r+")
    before = np.array(weights)
    graph = product(cpu_context, weights)
    weights[:] = 0
    check(cpu_context, graph, before)


def test_a_file_that_was_changed_is_another_constant(context, path):
    check(context, product(context, matrix(path, 0)), matrix(path, 0))
    kept = product(context, matrix(path, 1))
    data = bytearray(path.read_bytes())
    data[16 : 16 + BYTES] = np.ones(ROWS * COLUMNS, np.float32).tobytes()
    path.unlink()
    path.write_bytes(data)
    check(context, product(context, matrix(path, 0)), np.ones((ROWS, COLUMNS), np.float32))
    check(context, kept, matrix(path, 1))
