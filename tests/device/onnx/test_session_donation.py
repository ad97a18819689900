"""``Session(…, donate=…)``: decoders whose caches stay on the device, in tensors of the context."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from tests.support.discriminating import assert_allclose
from tests.support.exported_decoder import (
    DONATED,
    HEADS,
    KV,
    PASTS,
    PRESENTS,
    SIZE,
    VOCABULARY,
    decoder,
)
from tests.support.onnx_models import info, model
from webnn_vk import MLContext
from webnn_vk.onnx import Session
from webnn_vk.tools.devices import open_context

CAPACITY = 24
LONG = TensorProto.INT64


def caches(context, names=PASTS, shape=(1, KV, CAPACITY, SIZE)):
    """Tensors full of NaN."""
    made = {}
    for name in names:
        made[name] = context.create_tensor({
            "data_type": "float32", "shape": shape, "writable": True, "readable": True,
        }).result()
        context.write_tensor(made[name], np.full(shape, np.nan, np.float32))
    return made


def mask(valid):
    return (np.arange(CAPACITY) < valid).astype(np.int64)[None]


def check_in_place(context, graph, pairs):
    report = graph.report()
    assert len(report.donated) == pairs
    if context.device_info.is_vulkan:
        assert report.copies == 0 and report.count("cpu") == 0
        assert all(note.endswith("written in place") for note in report.donated)


def check_tokens(context, session, proto):
    """A prompt, then tokens, beside ONNX Runtime with a cache that grows."""
    runtime = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    grown = {name: np.zeros((1, KV, 0, SIZE), np.float32) for name in PASTS}
    tensors = caches(context)
    ids, valid, graphs = np.array([[3, 17, 5, 8, 21]]), 0, []
    for _ in range(5):
        valid += ids.shape[1]
        feeds = {"input_ids": ids, "attention_mask": mask(valid), **tensors}
        logits, *presents = session.run(None, feeds)
        assert all(a is b for a, b in zip(presents, tensors.values(), strict=True))
        expected, *grew = runtime.run(
            None, {"input_ids": ids, "attention_mask": np.ones((1, valid), np.int64), **grown}
        )
        assert_allclose(logits, expected, rtol=1e-4, atol=2e-5)
        grown = dict(zip(PASTS, grew, strict=True))
        graphs.append(session.graph(feeds))
        check_in_place(context, graphs[-1], len(DONATED))
        ids = logits[:, -1:].argmax(2)
    for name, tensor in tensors.items():
        array = context.read_tensor(tensor).result()
        assert_allclose(array[:, :, :valid], grown[name], rtol=1e-4, atol=2e-5)
        assert np.isnan(array[:, :, valid:]).all()
    return graphs


def test_a_decoder_updates_its_caches_in_place(context: MLContext):
    """One graph for the prompt, and one for all tokens."""
    proto = decoder()
    graphs = check_tokens(context, Session(proto, context, donate=DONATED), proto)
    assert len({id(graph) for graph in graphs}) == 2


def test_two_conversations_and_single_outputs(context: MLContext):
    """Each has caches of its own. Those are updated where only the logits are asked for, too."""
    session = Session(decoder(), context, donate=DONATED)
    prompts = np.array([[3, 17, 5]]), np.array([[30, 1, 2]])
    wanted = [session.run(["logits"], {
        "input_ids": np.append(ids, [[7]], 1), "attention_mask": mask(4), **caches(context),
    })[0][:, -1:] for ids in prompts]
    each = [caches(context) for _ in prompts]
    for ids, tensors in zip(prompts, each, strict=True):
        (logits,) = session.run(
            ["logits"], {"input_ids": ids, "attention_mask": mask(3), **tensors}
        )
        assert logits.shape == (1, 3, VOCABULARY)
    for expected, tensors in zip(wanted, each, strict=True):
        feeds = {"input_ids": np.array([[7]]), "attention_mask": mask(4), **tensors}
        (logits,) = session.run(["logits"], feeds)
        assert_allclose(logits, expected, rtol=1e-4, atol=2e-5)
    # Arrays are copied: the caller's stay as they are.
    arrays = {name: context.read_tensor(x).result() for name, x in each[1].items()}
    before = {name: x.copy() for name, x in arrays.items()}
    feeds = {"input_ids": np.array([[7]]), "attention_mask": mask(4), **arrays}
    again, *presents = session.run(None, feeds)
    np.testing.assert_array_equal(again, logits)
    for name, present in zip(PASTS, presents, strict=True):
        np.testing.assert_array_equal(arrays[name], before[name])
        np.testing.assert_array_equal(present, before[name])


def test_named_dimensions(vulkan_context: MLContext):
    """With "dynamic-shapes" one graph takes the tokens, whatever the length of the cache."""
    name = vulkan_context.device_info.name
    with open_context(name, experimental={"dynamic-shapes"}) as context:
        proto = decoder()
        sizes = {"total_sequence_length": CAPACITY, "past_sequence_length": CAPACITY}
        session = Session(proto, context, donate=DONATED, dimensions=sizes)
        _, *graphs = check_tokens(context, session, proto)
        assert len({id(graph) for graph in graphs}) == 1
        feeds = {"input_ids": np.array([[9]]), "attention_mask": mask(1)[:, :9]}
        assert session.graph(feeds | caches(context, shape=(1, KV, 9, SIZE))) is graphs[0]


def test_tensor_scatter_and_attention(context: MLContext):
    """ONNX's own form: TensorScatter and Attention of a valid length."""
    shape = [1, KV, CAPACITY, SIZE]
    nodes = [
        helper.make_node("TensorScatter", [f"past_{p}", f"row_{p}", "starts"], [f"new_{p}"])
        for p in "kv"
    ]
    nodes.append(helper.make_node(
        "Attention", ["q", "new_k", "new_v", "", "", "", "valid"], ["y"], is_causal=1
    ))
    proto = model(
        nodes,
        [info("q", [1, HEADS, 1, SIZE]), info("starts", [1], LONG), info("valid", [1], LONG),
         *(info(f"row_{p}", [1, KV, 1, SIZE]) for p in "kv"),
         *(info(f"past_{p}", shape) for p in "kv")],
        [info("y", [1, HEADS, 1, SIZE]), *(info(f"new_{p}", shape) for p in "kv")], opset=24,
    )
    session = Session(proto, context, donate={"past_k": "new_k", "past_v": "new_v"})
    tensors = caches(context, ("past_k", "past_v"))
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(2, KV, CAPACITY, SIZE)).astype(np.float32)
    for valid in range(1, 5):
        q = rng.normal(size=(1, HEADS, 1, SIZE)).astype(np.float32)
        new = rows[:, None, :, valid - 1 : valid]
        feeds = {"q": q, "starts": np.array([valid - 1]), "valid": np.array([valid]),
                 "row_k": new[0], "row_v": new[1], **tensors}
        y, k, v = session.run(None, feeds)
        assert k is tensors["past_k"] and v is tensors["past_v"]
        keys, values = np.repeat(rows[:, :, :valid], HEADS // KV, 1)
        scores = np.einsum("hd,hnd->hn", q[0, :, 0], keys) * SIZE**-0.5
        weights = np.exp(scores - scores.max(1, keepdims=True))
        expected = np.einsum("hn,hnd->hd", weights / weights.sum(1, keepdims=True), values)
        assert_allclose(y[0, :, 0], expected, rtol=1e-4, atol=1e-5)
    check_in_place(context, session.graph(feeds), 2)
    np.testing.assert_array_equal(context.read_tensor(k).result()[0, :, :4], rows[0][:, :4])


def test_what_is_refused(context: MLContext):
    proto = decoder()
    for donate, message in (
        ({"past": PRESENTS[0]}, "Session: donate names 'past'"),
        ({PASTS[0]: "present"}, "the model's outputs"),
        (dict.fromkeys(PASTS[:2], PRESENTS[0]), "two inputs"),
        (3, "mapping"),
    ):
        with pytest.raises(TypeError, match=message):
            Session(proto, context, donate=donate)
    session, tensors = Session(proto, context, donate=DONATED), caches(context)
    feeds = {"input_ids": np.array([[1]]), "attention_mask": mask(1), **tensors}
    half = context.create_tensor({"data_type": "float16", "shape": [1, KV, CAPACITY, SIZE]})
    flat = context.create_tensor({"data_type": "float32", "shape": [CAPACITY, SIZE]})
    first = PASTS[0]
    for wrong, error, message in (
        ({"input_ids": tensors[first]}, ValueError, "'input_ids': a tensor is given.*donate"),
        ({first: half.result()}, ValueError, "float16 tensor is given, float32 is expected"),
        ({first: flat.result()}, ValueError, r"float32\[24, 16\] is given"),
        ({first: tensors[PASTS[1]]}, TypeError, "more than one input"),
    ):
        with pytest.raises(error, match=message):
            session.run(None, feeds | wrong)
    with open_context("cpu") as other:
        elsewhere = caches(other)
        with pytest.raises(TypeError, match="another context"):
            session.run(None, feeds | elsewhere)
    with pytest.raises(ValueError, match="a tensor is given"):
        Session(proto, context).run(None, feeds)
