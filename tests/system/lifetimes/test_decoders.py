"""A language model's decoder with a growing past: every step has new shapes, the weights exist
once.

Each way of computing runs in a new process, which counts the arrays it makes, the device's memory,
and the weights that it gives to ONNX Runtime. With --explore the process's peak of resident memory
is checked too.
"""

import os
import subprocess
import sys

import numpy as np
import pytest

from tests.support.decoders import decoder
from tests.support.discriminating import assert_allclose
from tests.support.paths import ROOT
from webnn_vk.runtime.batch_assembly import STAGED_BYTES

onnxruntime = pytest.importorskip("onnxruntime")
LAYERS, WIDTH, HEADS, WORDS = 5, 384, 6, 9000
STEPS = 8
CHILD = """
from tests.support import host_memory
host_memory.start()
import sys
import weakref
import numpy as np
import webnn_vk
from tests.support.decoders import decoder
from webnn_vk.onnx import Session
from webnn_vk.runtime import onnx_session

path, device, result, narrow = sys.argv[1:]
context = webnn_vk.ml.create_context().result()
assert (context.device_info.name[:3] == "CPU") == (device == "cpu"), context.device_info.name

def peak():
    # (The maximum of getrusage is that of the process before it became this program, too.)
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))

# Bytes that living sessions of ONNX Runtime have of their own: models, and weights that they pack.
packed = weakref.WeakKeyDictionary()
open_session = onnx_session.open_session

def opened(data, weights, options, in_place=False):
    session, values = open_session(data, weights, options, in_place)
    packed[session] = len(data) + (0 if in_place else sum(a.nbytes for a in weights.values()))
    return session, values

onnx_session.open_session = opened

def counted():
    return (host_memory.peak() - held, context._state.device.memory_in_use() - on_device,
            sum(packed.values()))

def steps(source, layers, heads, size, count):
    session = Session(source, context, narrow_double=narrow == "1")
    names = [i.name for i in session.get_inputs()][1:]
    past = {n: np.ones((1, heads, 1, size), np.float32) for n in names}
    ids = np.array([[1, 2, 3]])
    for number in range(count):
        logits, *rows = session.run(None, {"ids": ids, **past})
        past = dict(zip(names, rows, strict=True))
        yield ids, logits, past
        ids = logits[:, -1:].argmax(-1)

# What computing takes that is the same for every model: modules, compilers, threads.
for _ in steps(decoder(1, 64, 2, 50).SerializeToString(), 1, 2, 32, 3):
    pass
before, peaks, counts, kept = peak(), [], [], {}
held, on_device = host_memory.held(), context._state.device.memory_in_use()
host_memory.begin_peak()
for number, (ids, logits, past) in enumerate(steps(path, *map(int, LAYOUT), STEPS)):
    peaks.append(peak() - before)
    counts.append(counted())
    kept[f"ids{number}"], kept[f"logits{number}"] = ids, logits
    kept[f"k{number}"] = past["past_v0"]
np.savez(result, peaks=np.array(peaks), counts=np.array(counts), **kept)
""".replace("LAYOUT", str((LAYERS, HEADS, WIDTH // HEADS))).replace("STEPS", str(STEPS))

#: Device, engine, whether ONNX Runtime is kept from taking the model as a whole, and how many
#: copies of the weights may exist at the peak of resident memory: in the mapped file; aligned (they
#: aren't in the file), as ONNX Runtime reads them and as it packs them; as folded constants.
WAYS = {
    "onnxruntime": ("cpu", "onnxruntime", "0", 4.0),
    "onnxruntime, a graph for each shape": ("cpu", "onnxruntime", "1", 5.5),
    "numpy": ("cpu", "numpy", "0", 3.0),
    "vulkan": ("vulkan", "auto", "0", 4.0),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("decoder") / "decoder.onnx"
    proto = decoder(LAYERS, WIDTH, HEADS, WORDS)
    path.write_bytes(proto.SerializeToString())
    return path


def run(way, model, folder):
    """What the process counted: the arrays that are saved at the end of CHILD."""
    device, engine, narrow, _ = WAYS[way]
    environment = {**os.environ, "WEBNN_VK_CPU_ENGINE": engine}
    environment["WEBNN_VK_DEVICE"] = device
    if engine == "onnxruntime":
        # What it frees returns to the system. By glibc's own threshold up to 30 MB more stay in
        # the heap, in some runs more than in others.
        environment["MALLOC_MMAP_THRESHOLD_"] = str(1 << 20)
    result = folder / "result.npz"
    subprocess.run(
        [sys.executable, "-c", CHILD, str(model), device, str(result), narrow],
        check=True, cwd=ROOT, env=environment,
    )
    return np.load(result)


@pytest.mark.device
@pytest.mark.parametrize("way", [
    pytest.param(way, marks=pytest.mark.explore if way in ("numpy", "onnxruntime") else ())
    for way in WAYS
])
def test_weights_are_there_once(way, model, tmp_path):
    got = run(way, model, tmp_path)
    weights = model.stat().st_size
    assert weights > 45e6
    counts = got["counts"] / weights
    # Arrays: aligned copies (the weights aren't aligned in the file), and folded constants. Uploads
    # stage up to STAGED_BYTES beside them, as many as the device hasn't taken yet.
    arrays, on_device, packed = counts.T
    staged = STAGED_BYTES / weights
    assert arrays[-1] < (1 + staged if way == "vulkan" else 2), counts
    assert (1 <= on_device[-1] < 1.5) == (way == "vulkan") and on_device[-1] < 1.5, counts
    # One session packs them, the first.
    assert (0.7 <= packed[0]) == ("onnxruntime" in way) and packed.max() < 1.5, counts
    # What is made after the second shape would be made for each shape.
    later = counts[-1] - counts[1]
    assert (later < [0.2 + staged * (way == "vulkan"), 0.2, 0.2]).all(), counts

    peer = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [i.name for i in peer.get_inputs()][1:]
    past = {n: np.ones((1, HEADS, 1, WIDTH // HEADS), np.float32) for n in names}
    for number in range(STEPS):
        logits, *rows = peer.run(None, {"ids": got[f"ids{number}"], **past})
        past = dict(zip(names, rows, strict=True))
        assert got[f"k{number}"].shape == rows[1].shape == (1, HEADS, number + 4, WIDTH // HEADS)
        for ours, theirs in ((got[f"logits{number}"], logits), (got[f"k{number}"], rows[1])):
            assert_allclose(ours, theirs, atol=1e-4 * np.abs(theirs).max(), rtol=0)


@pytest.mark.device
@pytest.mark.explore
@pytest.mark.parametrize("way", WAYS)
def test_resident_memory(way, model, tmp_path):
    peaks, weights = run(way, model, tmp_path)["peaks"], model.stat().st_size
    # Objects made after the second shape are made for each shape.
    assert peaks[-1] - peaks[1] < 0.7 * weights, peaks / weights
    assert peaks[-1] < WAYS[way][3] * weights + 30e6, peaks / weights
