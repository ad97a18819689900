"""Kompute on a Vulkan device: the same results as the raw driver's, and Kompute's own behaviour."""

from __future__ import annotations

import json
import logging
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bench.models import mobilenet_v2
from tests.support import kompute
from tests.support.contexts import open_context
from tests.support.discriminating import assert_allclose
from tests.support.glsl import SCALE, compiled
from tests.support.kompute import require_kompute
from tests.support.paths import ROOT
from tests.support.summary import LINE
from webnn_vk import MLGraphBuilder, NotSupportedError, OperationError, Settings, ml
from webnn_vk.driver import CopyCommand, DispatchCommand, FillCommand, PipelineRequest
from webnn_vk.examples.sentence_encoder import ModelError, Weights, build_encoder, load_model


@pytest.fixture(scope="module")
def context():
    require_kompute()
    with open_context(driver="kompute") as context:
        yield context


def test_the_run_says_whether_kompute_was_tested(record_property):
    why = kompute.problem()
    record_property(LINE, f"Kompute: NOT TESTED: {why}" if why else "Kompute: tested, kp 0.9.0")


# -- graphs
def compute(context, make, inputs):
    builder = MLGraphBuilder(context)
    operands = {
        name: builder.input(name, {"data_type": str(data.dtype), "shape": data.shape})
        for name, data in inputs.items()
    }
    with builder.build(make(builder, operands)).result() as graph:
        assert {step.device for step in graph.report().steps} <= {"vulkan"}
        return context.compute(graph, inputs)


def perceptron(builder, operands):
    random = np.random.default_rng(1)
    x = operands["x"]
    for width in (96, 80, 33):
        weight = random.standard_normal((x.shape[-1], width)).astype(np.float32)
        bias = random.standard_normal(width).astype(np.float32)
        x = builder.gelu(builder.add(builder.matmul(x, builder.constant(weight)),
                                     builder.constant(bias)))
    parts = builder.split(x, [11, 22], axis=1)
    return {"y": builder.concat([parts[1], parts[0]], 1), "s": builder.softmax(x, 1)}


def test_results_are_the_raw_drivers(context, vulkan_context):
    inputs = {"x": np.random.default_rng(0).standard_normal((17, 64)).astype(np.float32)}
    expected = compute(vulkan_context, perceptron, inputs)
    for name, result in compute(context, perceptron, inputs).items():
        assert np.array_equal(result, expected[name])


@pytest.mark.parametrize("data_type", ["float16", "int8", "uint8", "int64", "uint64"])
def test_types_of_8_16_and_64_bits_are_emulated(context, vulkan_context, data_type):
    data = np.arange(1, 106).reshape(15, 7).astype(data_type)

    def make(builder, operands):
        a = operands["a"]
        total = builder.add(builder.mul(a, a), builder.transpose(builder.reshape(a, [7, 15])))
        return {"y": builder.slice(total, [1, 2], [13, 4]), "z": builder.reverse(a)}

    expected = compute(vulkan_context, make, {"a": data})
    for name, result in compute(context, make, {"a": data}).items():
        assert np.array_equal(result, expected[name])


def test_parameters_that_exceed_push_constants(context, vulkan_context):
    """Each kernel's parameters have their own tensor."""
    data = np.random.default_rng(3).standard_normal((2, 3, 2, 3, 2, 3, 2)).astype(np.float32)
    orders = {"y": [6, 5, 4, 3, 2, 1, 0], "z": [2, 6, 0, 4, 1, 5, 3]}

    def make(builder, operands):
        return {name: builder.transpose(operands["a"], permutation=order)
                for name, order in orders.items()}

    builder = MLGraphBuilder(context)
    operand = builder.input("a", {"data_type": "float32", "shape": data.shape})
    with builder.build(make(builder, {"a": operand})).result() as graph:
        assert len({id(storage) for storage in _parameters(graph)}) == 2
        results = context.compute(graph, {"a": data})
    for name, expected in compute(vulkan_context, make, {"a": data}).items():
        assert np.array_equal(results[name], expected)
        assert np.array_equal(expected, data.transpose(orders[name]))


def _parameters(graph):
    """The storages of a graph's parameters."""
    executable = graph._executable
    slots = executable.program.slots
    return [s for n, s in executable._storages.items() if slots[n].kind == "params"]


def test_tensors_that_stay_and_work_on_the_cpu_in_between(vulkan_context):
    require_kompute()
    with open_context(driver="kompute", force_cpu=("softmax",)) as context:
        builder = MLGraphBuilder(context)
        x = builder.input("x", {"data_type": "float32", "shape": [8, 50]})
        made = {"y": builder.add(builder.softmax(builder.mul(x, x), 1), x)}
        with builder.build(made).result() as graph:
            assert {step.device for step in graph.report().steps} == {"vulkan", "cpu"}
            descriptor = {"data_type": "float32", "shape": [8, 50], "readable": True,
                          "writable": True}
            given = context.create_tensor(descriptor).result()
            result = context.create_tensor(descriptor).result()
            for seed in range(3):
                data = np.random.default_rng(seed).standard_normal((8, 50)).astype(np.float32)
                context.write_tensor(given, data)
                context.dispatch(graph, {"x": given}, {"y": result})
                power = np.exp(data * data - (data * data).max(-1, keepdims=True))
                expected = power / power.sum(-1, keepdims=True) + data
                got = context.read_tensor(result).result()
                assert np.allclose(np.frombuffer(got, np.float32).reshape(8, 50), expected, 1e-5)


def test_mobilenet_is_the_raw_drivers(context, vulkan_context):
    """Bit by bit where the raw driver, like Kompute, makes no views of buffers, and so has the same
    kernels."""
    with open_context(limits={"max_texel_buffer_elements": 0}) as alike:
        results = []
        for own in (context, alike, vulkan_context):
            with mobilenet_v2.build(own).result() as graph:
                assert all(step.device == "vulkan" for step in graph.report().steps)
                results.append(own.compute(graph, {"image": mobilenet_v2.image()})["logits"])
    through, raw, unlimited = results
    assert np.array_equal(through, raw)
    assert_allclose(through, unlimited, rtol=0, atol=1e-5 * np.abs(raw).max())


def test_minilm_is_the_raw_drivers(context, vulkan_context):
    try:
        model = load_model()
    except ModelError as error:
        pytest.skip(str(error))
    random = np.random.default_rng(0)
    inputs = {
        "ids": random.integers(0, model.config.vocabulary, (2, 16), np.int32),
        "mask": np.ones((2, 16), np.float32),
    }
    results = []
    for each in (context, vulkan_context):
        weights = Weights(each, model)
        weights.upload()
        with build_encoder(weights, 2, 16).result() as graph:
            assert all(step.device == "vulkan" for step in graph.report().steps)
            results.append(each.compute(graph, inputs)["embeddings"])
        weights.destroy()
    assert np.array_equal(*results)
    assert np.allclose(np.linalg.norm(results[0], axis=-1), 1, atol=1e-5)


def test_a_process_may_end_with_the_context_open(context):
    code = """
import numpy as np
from webnn_vk import MLGraphBuilder, Settings, ml
context = ml.create_context(settings=Settings(device="vulkan", driver="kompute")).result()
builder = MLGraphBuilder(context)
x = builder.input("x", {"data_type": "float32", "shape": [256, 256]})
graph = builder.build({"y": builder.matmul(x, x)}).result()
tensors = [context.create_tensor({"data_type": "float32", "shape": [256, 256]}).result()
           for _ in range(2)]
for _ in range(50):
    context.dispatch(graph, {"x": tensors[0]}, {"y": tensors[1]})
print("queued")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "queued\n"), done.stderr[-2000:]


#: Destroys a device that writes much log output in Python while Kompute destroys its own.
BOTH_AT_ONCE = """
import faulthandler, sys, threading
faulthandler.dump_traceback_later(100, exit=True)
from tests.conformance.driver.conftest import open_named
from webnn_vk.driver.vulkan import binding as vk
from webnn_vk.driver.vulkan.instance import drain_validation_messages
sys.setswitchinterval(1e-4)
info = vk.struct("VkBufferCreateInfo", "BUFFER_CREATE_INFO", size=64, usage=0x20)
for _ in range(15):
    left, other = open_named("vulkan"), open_named("kompute")
    for _ in range(200):
        vk.lib.vkCreateBuffer(left.handle, info, vk.NULL, vk.new("VkBuffer *"))
    closing = threading.Thread(target=left.close)
    closing.start()
    other.close()
    closing.join()
    assert len(drain_validation_messages()) == 200
print("closed")
"""


def test_closing_beside_a_device_that_says_something():
    """Kompute's calls hold the interpreter's lock, which a log message needs: one time in five the
    two used to deadlock."""
    require_kompute()
    if os.environ["WEBNN_VK_VALIDATE"] in ("", "0"):
        pytest.skip("validation layer off: nobody says anything")
    done = subprocess.run([sys.executable, "-c", BOTH_AT_ONCE], cwd=ROOT, capture_output=True,
                          text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "closed\n"), done.stderr[-2000:]


def test_a_tensor_beyond_a_binding_is_refused(context):
    limit = context.op_support_limits()["max_tensor_byte_length"]
    profile = context._state.device.profile
    assert limit <= profile.max_storage_buffer_range
    with pytest.raises((TypeError, OperationError), match=str(limit)):
        context.create_tensor(
            {"data_type": "float32", "shape": [limit // 4 + 1]}).result()


def test_saved_graphs_are_for_their_driver(context, vulkan_context):
    builder = MLGraphBuilder(context)
    x = builder.input("x", {"data_type": "float32", "shape": [4]})
    graph = builder.build({"y": builder.abs(x)}).result()
    context.save_graph("of kompute", graph).result()
    loaded = context.load_graph("of kompute").result()
    data = np.array([-1, 2, -3, 4], np.float32)
    assert np.array_equal(context.compute(loaded, {"x": data})["y"], np.abs(data))
    with pytest.raises(NotSupportedError, match="Kompute"):
        vulkan_context.load_graph("of kompute").result()
    context.delete_graph("of kompute").result()


# -- refusals
def test_sharing_is_refused_with_the_reason(context):
    descriptor = {"data_type": "float32", "shape": [4], "readable": True}
    with pytest.raises(NotSupportedError, match="Kompute gives no access to the handles"):
        context.create_exportable_tensor(descriptor).result()
    with pytest.raises(NotSupportedError, match="has no semaphores"):
        context.create_exportable_semaphore()
    page = np.zeros(1024, np.float32)
    with pytest.raises(NotSupportedError, match="Kompute gives no access"):
        context._state.device.import_storage(page)


def test_a_gpu_device_needs_vulkan(vulkan):
    from webnn_vk import gpu

    adapter = gpu.enumerate_adapters()[0]
    with pytest.raises(NotSupportedError, match="needs the driver vulkan; driver is 'kompute'"):
        adapter.request_device(settings=Settings(driver="kompute")).result()


def test_modules_that_need_features_are_refused(context):
    driver = context._state.device.driver
    header = struct.pack("<5I", 0x07230203, 0x00010500, 0, 1, 0)
    capability = struct.pack("<2I", 2 << 16 | 17, 11)  # Int64
    with pytest.raises(ValueError, match="capability 11"):
        driver.pipelines([PipelineRequest(header + capability, 1, name="wide")])
    for constants in (((1, bytes(4)),), ((0, bytes(4)), (2, bytes(4)))):
        with pytest.raises(ValueError, match="from 0 on"):
            driver.pipelines([PipelineRequest(header, 1, 0, constants)])


def test_host_memory_is_for_transfers_alone(context, monkeypatch):
    monkeypatch.delenv("WEBNN_VK_DUMP_SPIRV")  # the module has only a header
    driver = context._state.device.driver
    header = struct.pack("<5I", 0x07230203, 0x00010500, 0, 1, 0)
    [pipeline] = driver.pipelines([PipelineRequest(header, 1)])
    host = driver.allocate(64, host=True)
    with pytest.raises(ValueError, match="the host's"):
        driver.record([DispatchCommand(pipeline, ((host, 0, 64),))])


def test_without_kp_the_context_says_how_to_get_it():
    code = (
        "import sys; sys.modules['kp'] = None\n"
        "import webnn_vk\n"
        "try:\n    webnn_vk.ml.create_context(driver='kompute').result()\n"
        "except webnn_vk.NotSupportedError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "scripts/install-kompute" in done.stdout


def test_unknown_drivers_are_refused():
    with pytest.raises(TypeError, match="driver: 'metal' is not one of vulkan, kompute, null"):
        ml.create_context(driver="metal").result()
    with pytest.raises(ValueError, match="driver: 'metal' is not one of vulkan, kompute, null"):
        Settings(driver="metal")
    with pytest.raises(ValueError, match="WEBNN_VK_DRIVER: 'metal' is not one of"):
        Settings.from_environment({"WEBNN_VK_DRIVER": "metal"})


# -- below
def test_loading_kp_leaves_logging_alone(context):
    code = (
        "import logging\nfrom webnn_vk.driver.kompute.binding import load\nload()\n"
        "print(logging.getLogger().handlers)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert isinstance(logging.getLogger("kp"), logging.Logger)


def test_staging_twins(context):
    """Tensors as on a GPU, where the host sees a copy of the device's memory."""
    import kp

    from webnn_vk.driver.kompute.memory import Buffer, KomputeAllocation
    from webnn_vk.driver.kompute.recording import Mover, parts

    manager = context._state.device.driver._manager

    def device_tensor(values):
        tensor = manager.tensor_t(np.array(values, np.uint32), kp.TensorTypes.device)
        words = np.lib.stride_tricks.as_strided(tensor.data(), strides=(4,))
        return KomputeAllocation(Buffer(4 * len(values), tensor, words, twin=True), "twin")

    a, b = device_tensor([1, 2, 3, 4]), device_tensor([5, 6, 7, 8])
    host = KomputeAllocation(Buffer(16, None, np.zeros(4, np.uint32), twin=False), "host")
    assert a.mapped is None and host.mapped is not None
    mover = Mover(kp, manager)

    def run(*commands):
        for part in parts(commands, kp, manager, None, mover):
            part()

    for allocation in (a, b):
        mover._send(allocation.held.buffer)
    # Only the tensor has a dispatch's output.
    a.held.buffer.words[:] = 0
    a.held.buffer.stale = True
    run(CopyCommand(a, 4, b, 8, 8))
    run(FillCommand(a, 0, 4, 9))
    for allocation, expected in ((a, [9, 2, 3, 4]), (b, [5, 6, 2, 3])):
        allocation.held.buffer.words[:] = 0
        allocation.held.buffer.stale = True
        run(CopyCommand(allocation, 0, host, 0, 16))
        assert list(host.held.buffer.words) == expected


def synchronisation(code: str, tmp_path: Path) -> str:
    """The messages of synchronisation validation about Kompute's own calls in a process that runs
    code."""
    log = tmp_path / "log.txt"
    (tmp_path / "vk_layer_settings.txt").write_text(
        "khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG\n"
        "khronos_validation.report_flags = error,warn\n"
        f"khronos_validation.log_filename = {log}\n"
    )
    variables = {
        **os.environ,
        "VK_INSTANCE_LAYERS": "VK_LAYER_KHRONOS_validation",
        "VK_LAYER_SETTINGS_PATH": str(tmp_path),
        # The layer doesn't see that the host waits between submissions.
        "VK_LAYER_ENABLES": "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT",
        "WEBNN_VK_VALIDATE": "0",
        "WEBNN_VK_DRIVER": "kompute",
        "WEBNN_VK_DEVICE": "vulkan",
    }
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=variables,
                          capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    return log.read_text() if log.exists() else ""


GRAPH = """
import numpy as np
from webnn_vk import MLGraphBuilder, ml
with ml.create_context().result() as context:
    builder = MLGraphBuilder(context)
    x = y = builder.input("x", {"data_type": "float32", "shape": [64, 64]})
    for step in range(4):
        y = builder.softmax(builder.matmul(y, x), 1)
    graph = builder.build({"y": y}).result()
    assert context.device_info.driver.startswith("Kompute")
    context.compute(graph, {"x": np.ones((64, 64), np.float32)})
"""
# Two dispatches in one sequence, the second of which reads the first's output.
UNORDERED = """
import kp, numpy as np
manager = kp.Manager(0)
a, b = (manager.tensor_t(np.ones(64, np.uint32), kp.TensorTypes.host) for _ in range(2))
code = open(SPIRV, "rb").read()
numbers = np.array([64, 2], np.uint32), np.array([64, 0], np.uint32)
sequence = manager.sequence()
for order in ([a, b], [b, a]):
    sequence.record(kp.OpAlgoDispatch(manager.algorithm(order, code, (1, 1, 1), *numbers)))
sequence.eval()
"""


def test_synchronisation_validation_finds_nothing(context, tmp_path):
    assert "SYNC-HAZARD" not in (text := synchronisation(GRAPH, tmp_path)), text
    assert "Validation Error" not in text, text


def test_dependent_dispatches_in_one_sequence_would_be_found(context, tmp_path):
    target = tmp_path / "scale.spv"
    target.write_bytes(compiled(SCALE, tmp_path))
    code = UNORDERED.replace("SPIRV", json.dumps(str(target)))
    assert "SYNC-HAZARD" in synchronisation(code, tmp_path)


def test_a_forked_child_is_refused(context):
    code = """
import os, sys
from webnn_vk import ml, Settings, InvalidStateError
import webnn_vk.driver as d
context = ml.create_context(settings=Settings(device="vulkan", driver="kompute")).result()
driver = context._state.device.driver
child = os.fork()
if child == 0:
    try:
        driver.allocate(16)
    except d.ForkedProcess as error:
        assert "spawn" in str(error)
        sys.exit(7)
    sys.exit(1)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
driver.allocate(16)
sys.exit(status)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 7, done.stderr[-2000:]
