"""Set-up on a device: constants uploaded and packed, shared between graphs, and freed."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

from tests.support.contexts import open_context, open_over, returns_to
from tests.support.drivers import require_vulkan
from tests.support.faults import FaultyDriver
from tests.support.loading import load, set_up, stage_constants
from tests.support.packed import bytes_of, storages
from tests.support.packing import Transposed, show
from tests.support.saving import save_program
from webnn_vk import OperationError
from webnn_vk.compiler.ir import Value
from webnn_vk.compiler.kernels.dispatch import Packed
from webnn_vk.compiler.program.assemble import assemble
from webnn_vk.compiler.program.serial import load as read_back
from webnn_vk.compiler.types.data_types import MLOperandDescriptor
from webnn_vk.runtime import setup
from webnn_vk.runtime.reclaim import TRIES
from webnn_vk.runtime.work import Await, Run, Write
from webnn_vk.support import background

X = {"x": np.zeros(1, np.float32)}


@pytest.fixture
def context():
    require_vulkan()
    with open_context() as context:
        yield context


@pytest.fixture
def staged(monkeypatch):
    stage_constants(monkeypatch)


def constant(rows: int, columns: int, seed: int = 0) -> Value:
    data = np.random.default_rng(seed).standard_normal((rows, columns), np.float32)
    return Value(MLOperandDescriptor("float32", data.shape), data=data)


def run(context, graph):
    return context.compute(graph, X)


def shown(context, packed, plain=()):
    return show(context._state.device.profile, packed, plain)


@pytest.mark.parametrize("packing", [Transposed(), Transposed(3), Transposed(2, True)])
def test_a_kernel_reads_the_packed_form(context, packing):
    value = constant(37, 50)
    graph = load(context, shown(context, [Packed(value, packing)]))
    got = run(context, graph)["packed0"]
    wanted = np.tile(value.data.T.reshape(-1), packing.repeat)
    np.testing.assert_array_equal(got, wanted)
    unpacked = packing.unpack(got.view(np.uint8), value.descriptor)
    np.testing.assert_array_equal(unpacked, value.data)


def test_packed_and_plain_readers_of_one_constant(context):
    value = constant(12, 20)
    packed = [Packed(value, packing) for packing in (Transposed(), Transposed(2), Transposed())]
    graph = load(context, shown(context, packed, [value]))
    got = run(context, graph)
    np.testing.assert_array_equal(got["plain0"], value.data)
    columns = value.data.T.reshape(-1)
    np.testing.assert_array_equal(got["packed0"], columns)
    np.testing.assert_array_equal(got["packed1"], np.tile(columns, 2))
    np.testing.assert_array_equal(got["packed2"], columns)
    # Equal packings of one constant share memory: one unpacked, and two packed.
    report = graph.report()
    assert (report.weight_bytes, report.packed_bytes) == (960 * 4, 960 * 3)
    assert len(report.setup) == 3 and {line.kernel for line in report.setup} == {"copy"}
    assert "once, at load" in str(report)
    assert bytes_of(context._state.device.packed) == 960 * 3


def test_originals_pass_through_in_groups_and_are_gone_after(context, monkeypatch):
    monkeypatch.setattr(setup, "GROUP_BYTES", 100_000)
    allocated, peak = [], 0
    device = context._state.device
    real = device.driver.allocate

    def allocate(size, **options):
        nonlocal peak
        made = real(size, **options)
        if options.get("label") == "tensor":
            allocated.append(size)
            peak = max(peak, device.driver.memory_in_use().allocated)
        return made

    monkeypatch.setattr(device.driver, "allocate", allocate)
    before = device.memory_in_use()
    values = [constant(100, 100 + i, i) for i in range(8)]  # 40,000 bytes and more each
    graph = load(context, shown(context, [Packed(v, Transposed()) for v in values]))
    kept = device.memory_in_use() - before
    total = sum(v.descriptor.byte_length for v in values)
    assert total <= kept < total + 8 * 256
    # Eight packed forms and four groups of two originals, never two groups at a time.
    assert len(allocated) == 12
    assert peak - before <= kept + setup.GROUP_BYTES + 512
    for i, value in enumerate(values):
        got = run(context, graph)[f"packed{i}"]
        np.testing.assert_array_equal(got, value.data.T.reshape(-1))
    graph.destroy()
    del graph
    gc.collect()
    assert returns_to(context, before)


def test_no_reference_to_the_constants_is_left(context):
    value, plain = constant(30, 40), constant(8, 8)
    data = weakref.ref(value.data), weakref.ref(plain.data)
    graph = load(context, shown(context, [Packed(value, Transposed())], [plain]))
    del value, plain
    gc.collect()
    assert [reference() for reference in data] == [None, None]
    assert run(context, graph)["packed0"].any()


def test_graphs_share_constants_of_one_key(context):
    """Shared if packed or plain alike; with other elements, or without a key, nothing is shared."""
    device = context._state.device
    data = np.random.default_rng(3).standard_normal((64, 100), np.float32)

    def keyed(key: str | None, data: np.ndarray) -> Value:
        return Value(MLOperandDescriptor("float32", data.shape), data=data, key=key)

    def made(value: Value):
        return load(context, shown(context, [Packed(value, Transposed())], [value]))

    before = device.memory_in_use()
    graphs = [made(keyed("a", data.copy()))]
    first = device.memory_in_use() - before
    graphs += [made(keyed("a", data.copy())) for _ in range(3)]
    # Parameters and similar buffers are not shared.
    assert device.memory_in_use() - before < first + data.nbytes
    assert first >= 2 * data.nbytes
    other = made(keyed("b", data + 1))
    alone = made(keyed(None, data + 2))
    assert device.memory_in_use() - before >= 3 * first
    for graph, wanted in (*((g, data) for g in graphs), (other, data + 1), (alone, data + 2)):
        got = run(context, graph)
        np.testing.assert_array_equal(got["plain0"], wanted)
        np.testing.assert_array_equal(got["packed0"], wanted.T.reshape(-1))
    # The first graph is gone, the shared memory is not.
    graphs.pop(0).destroy()
    gc.collect()
    np.testing.assert_array_equal(run(context, graphs[0])["plain0"], data)
    del graph, graphs, other, alone
    gc.collect()
    assert returns_to(context, before)


def test_two_graphs_share_one_packed_form(context):
    device = context._state.device
    tensor = context.create_constant_tensor(
        {"data_type": "float32", "shape": [6, 8]}, np.arange(48, dtype=np.float32)
    ).result()
    descriptor = MLOperandDescriptor("float32", (6, 8))

    def graph(repeat=1):
        value = Value(descriptor, source=tensor._state.use("test"))
        return load(context, shown(context, [Packed(value, Transposed(repeat))]))

    first = graph()
    (storage,) = storages(device.packed)
    second, other = graph(), graph(2)
    assert len(storages(device.packed)) == 2
    assert storages(device.packed)[0] is storage
    wanted = np.arange(48, dtype=np.float32).reshape(6, 8).T.reshape(-1)
    for made in (first, second):
        np.testing.assert_array_equal(run(context, made)["packed0"], wanted)
    np.testing.assert_array_equal(run(context, other)["packed0"], np.tile(wanted, 2))
    # The packed form is freed with the last graph that uses it; the tensor's own memory stays.
    storage = weakref.ref(storage)
    first.destroy()
    context.fence().wait()
    np.testing.assert_array_equal(run(context, second)["packed0"], wanted)
    assert storage() is not None
    second.destroy()
    context.fence().wait()
    del first, second
    gc.collect()
    assert storage() is None and bytes_of(device.packed) == 2 * 48 * 4
    third = graph()
    np.testing.assert_array_equal(run(context, third)["packed0"], wanted)


def test_a_saved_program_is_packed_again_and_shared(context, tmp_path):
    value = constant(20, 30)
    lowered = shown(context, [Packed(value, Transposed(2))])
    save_program(*assemble(lowered, context._state.device.profile), tmp_path)
    saved = [read_back(tmp_path) for _ in range(2)]
    graphs = [set_up(context, each.program, each.constants) for each in saved]
    assert len(storages(context._state.device.packed)) == 1
    for graph in graphs:
        got = run(context, graph)["packed0"]
        np.testing.assert_array_equal(got, np.tile(value.data.T.reshape(-1), 2))


def test_equal_content_is_not_shared_and_other_shapes_neither(context):
    data = np.arange(48, dtype=np.float32)
    tensors = [
        context.create_constant_tensor({"data_type": "float32", "shape": [6, 8]}, data).result()
        for _ in range(2)
    ]
    graphs = [
        load(
            context,
            shown(context, [Packed(Value(MLOperandDescriptor("float32", shape),
                                         source=tensor._state.use("test")), Transposed())]),
        )
        for tensor, shape in [(tensors[0], (6, 8)), (tensors[1], (6, 8)), (tensors[0], (4, 12))]
    ]
    assert len(storages(context._state.device.packed)) == 3
    got = run(context, graphs[2])["packed0"]
    np.testing.assert_array_equal(got, data.reshape(4, 12).T.reshape(-1))


def test_through_staging_memory(context, staged):
    value, plain = constant(30, 40), constant(8, 8)
    graph = load(context, shown(context, [Packed(value, Transposed())], [plain]))
    got = run(context, graph)
    np.testing.assert_array_equal(got["packed0"], value.data.T.reshape(-1))
    np.testing.assert_array_equal(got["plain0"], plain.data)


def test_a_constant_tensor_is_packed_after_it_was_written(context):
    """The set-up comes after the tensor's writes on the timeline, however late these run."""
    device = context._state.device
    storage = device.create_storage(48 * 4)
    hold = threading.Event()
    data = np.arange(48, dtype=np.float32)
    value = Value(MLOperandDescriptor("float32", (6, 8)), source=storage)
    program, constants = assemble(shown(context, [Packed(value, Transposed())]), device.profile)
    context._state.stream.enqueue(Await(lambda: hold.wait(60)), Write(storage, data.view(np.uint8)))
    background.start(lambda: (hold.wait(0.2), hold.set()), "release")
    graph = set_up(context, program, constants)
    got = run(context, graph)["packed0"]
    np.testing.assert_array_equal(got, data.reshape(6, 8).T.reshape(-1))


@pytest.mark.parametrize("nth", range(1, 4))
def test_memory_that_runs_out_fails_the_build_and_leaves_nothing(staged, nth):
    require_vulkan()
    context, driver = open_over(FaultyDriver)
    with context:
        device = context._state.device
        before = device.memory_in_use()
        value = constant(100, 100)
        lowered = shown(context, [Packed(value, Transposed())])
        program, constants = assemble(lowered, device.profile)
        executable = device.load(program, constants)
        driver.fail_allocation(nth, times=2 * TRIES)
        failed = []
        done = threading.Event()
        executable.set_up(context._state.stream, Run(done.set, failed.append))
        assert done.wait(60)
        assert driver.injected["allocation"] >= 1
        assert executable.setup_error() is not None
        del executable
        gc.collect()
        context.fence().wait()
        assert returns_to(context, before)
        # A failed one is not shared.
        graph = load(context, lowered)
        np.testing.assert_array_equal(
            run(context, graph)["packed0"], value.data.T.reshape(-1)
        )


def test_memory_that_is_found_later_is_enough():
    """No memory for the packed form at first: later the timeline allocates it."""
    require_vulkan()
    context, driver = open_over(FaultyDriver)
    with context:
        value = constant(100, 100)
        lowered = shown(context, [Packed(value, Transposed())])
        program, constants = assemble(lowered, context._state.device.profile)
        executable = context._state.device.load(program, constants)
        driver.fail_allocation(1, times=TRIES)
        done = threading.Event()
        executable.set_up(context._state.stream, Run(done.set, lambda error: done.set()))
        assert done.wait(60) and driver.injected["allocation"] == TRIES
        assert executable.setup_error() is None


def test_a_failing_submit_fails_the_build():
    require_vulkan()
    context, driver = open_over(FaultyDriver)
    with context:
        value = constant(10, 10)
        lowered = shown(context, [Packed(value, Transposed())])
        program, constants = assemble(lowered, context._state.device.profile)
        executable = context._state.device.load(program, constants)
        driver.fail_submit(1)
        failed = []
        done = threading.Event()
        def told(error):
            failed.append(error)
            done.set()

        executable.set_up(context._state.stream, Run(done.set, told))
        assert done.wait(60)
        assert isinstance(executable.setup_error(), OperationError)
        graph = load(context, lowered)
        np.testing.assert_array_equal(
            run(context, graph)["packed0"], value.data.T.reshape(-1)
        )
