"""Caches of a fixed capacity that ONNX models update in place: TensorScatter with Attention, and
GroupQueryAttention whose past and present share a buffer. Rows beyond the valid ones are NaN."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.support.discriminating import assert_allclose
from tests.support.onnx_models import info, model
from webnn_vk import MLContext
from webnn_vk.onnx import UnsupportedModelError, load

HEADS, GROUP, SIZE, CAPACITY = 2, 3, 8, 24
DONATED = {"past_k": "new_k", "past_v": "new_v"}
INT, LONG = TensorProto.INT32, TensorProto.INT64


def attended(q, k, v, length, *, causal=True, window=0, cap=0.0):
    """Queries [H, S, D] to the first ``length`` of keys and values [KV, T, D], in double."""
    group, steps = q.shape[0] // k.shape[0], q.shape[1]
    out = np.zeros(q.shape)
    for head in range(q.shape[0]):
        scores = q[head].astype(float) @ k[head // group, :length].T.astype(float) * SIZE**-0.5
        scores = cap * np.tanh(scores / cap) if cap else scores
        for step in range(steps):
            last = length - steps + step if causal else length - 1
            first = max(0, last - window + 1) if window else 0
            if last >= first:
                row = scores[step, first : last + 1]
                weights = np.exp(row - row.max())
                values = v[head // group, first : last + 1]
                out[head, step] = weights @ values / weights.sum()
    return out


def tensors(context, graph, given):
    """Tensors of a graph's inputs; the caches are outputs too."""
    made = {}
    for name, descriptor in graph.inputs.items():
        made[name] = context.create_tensor({
            "data_type": descriptor.data_type, "shape": descriptor.shape, "writable": True,
            "readable": True,
        }).result()
        context.write_tensor(made[name], given[name])
    return made


class Decoder:
    """A model on the device, and what its caches should hold."""

    def __init__(self, context, proto, batch, kind="float32"):
        self.context, self.batch = context, batch
        self.graph = load(proto, context, donate=DONATED).result()
        shape = (batch, HEADS, CAPACITY, SIZE)
        self.expected = {name: np.full(shape, np.nan, kind) for name in DONATED}
        self.given = {name: np.full(shape, np.nan, kind) for name in DONATED}
        self.tensors = None

    def run(self, **feeds):
        if self.tensors is None:
            self.tensors = tensors(self.context, self.graph, {**feeds, **self.given})
        for name, array in feeds.items():
            if name in self.tensors:
                self.context.write_tensor(self.tensors[name], array)
        y = self.graph.outputs["y"]
        result = self.context.create_tensor(
            {"data_type": y.data_type, "shape": y.shape, "readable": True}
        ).result()
        outputs = {DONATED[name]: self.tensors[name] for name in DONATED}
        self.context.dispatch(self.graph, self.tensors, {"y": result, **outputs})
        return self.context.read_tensor(result).result()

    def caches(self):
        return {name: self.context.read_tensor(self.tensors[name]).result() for name in DONATED}

    def check_report(self):
        if not self.context.device_info.is_vulkan:
            return
        report = self.graph.report()
        assert report.copies == 0 and report.count("cpu") == 0
        assert len(report.donated) == 2
        assert all(note.endswith("written in place") for note in report.donated)
        variants = [s.variant for s in report.steps if s.kernel == "attention"]
        assert len(variants) == self.batch
        assert all("of a length" in variant for variant in variants)


def attention_24(batch, steps, flat, kind=TensorProto.FLOAT, **attributes):
    """A step of a decoder as ONNX describes it."""
    def rows(heads):
        return [batch, steps, heads * SIZE] if flat else [batch, heads, steps, SIZE]

    cache = [batch, HEADS, CAPACITY, SIZE]
    nodes, k, v = [], "new_k", "new_v"
    for part in "kv":
        nodes.append(helper.make_node(
            "TensorScatter", [f"past_{part}", f"row_{part}", "starts"], [f"new_{part}"]
        ))
    if flat:
        attributes |= {"q_num_heads": HEADS * GROUP, "kv_num_heads": HEADS}
        for part in "kv":  # caches have four dimensions here: [batch, rows, all heads] for the node
            nodes += [
                helper.make_node("Transpose", [f"new_{part}"], [f"t_{part}"], perm=[0, 2, 1, 3]),
                helper.make_node("Reshape", [f"t_{part}", "flat"], [f"flat_{part}"]),
            ]
        k, v = "flat_k", "flat_v"
    nodes.append(helper.make_node("Attention", ["q", k, v, "", "", "", "valid"], ["y"],
                                  **attributes))
    inputs = [info("q", rows(HEADS * GROUP), kind), info("starts", [batch], LONG),
              info("valid", [batch], LONG)]
    for part in "kv":
        inputs += [info(f"row_{part}", [batch, HEADS, steps, SIZE], kind),
                   info(f"past_{part}", cache, kind)]
    outputs = [info("y", rows(HEADS * GROUP), kind), info("new_k", cache, kind),
               info("new_v", cache, kind)]
    constants = {"flat": np.array([batch, CAPACITY, HEADS * SIZE])} if flat else {}
    opset = 25 if "left_window_size" in attributes else 24
    return model(nodes, inputs, outputs, constants, opset=opset)


@pytest.mark.parametrize(("batch", "steps", "flat", "attributes"), [
    (1, 1, False, {}), (2, 1, True, {"is_causal": 1}), (3, 4, False, {"is_causal": 1}),
    (1, 4, True, {"is_causal": 1, "softcap": 0.8}), (2, 3, False, {"scale": SIZE**-0.5}),
    (2, 1, False, {"is_causal": 1, "left_window_size": 2, "right_window_size": 3}),
    (2, 3, True, {"is_causal": 1, "left_window_size": 2}),
])
def test_tensor_scatter_and_attention(context: MLContext, batch, steps, flat, attributes):
    decoder = Decoder(context, attention_24(batch, steps, flat, **attributes), batch)
    decoder.check_report()
    rng = np.random.default_rng(7)
    # The last of the sequences has fewer valid rows than queries at first.
    starts = np.arange(batch)[::-1] * 2 - (steps > 1)
    for cache, given in zip(decoder.expected.values(), decoder.given.values(), strict=True):
        for b in range(batch):
            rows = rng.normal(size=(HEADS, max(starts[b], 0), SIZE))
            cache[b, :, : max(starts[b], 0)] = rows
        given[:] = cache
    for _ in range(3):
        q = rng.normal(size=(batch, HEADS * GROUP, steps, SIZE)).astype(np.float32)
        rows = rng.normal(size=(2, batch, HEADS, steps, SIZE)).astype(np.float32)
        valid = starts + steps
        first = np.maximum(starts, 0)
        for cache, new in zip(decoder.expected.values(), rows, strict=True):
            for b in range(batch):
                cache[b, :, first[b] : first[b] + steps] = new[b]
        given = q.transpose(0, 2, 1, 3).reshape(batch, steps, -1) if flat else q
        y = decoder.run(q=given, row_k=rows[0], row_v=rows[1], starts=first, valid=valid)
        if flat:
            y = y.reshape(batch, steps, -1, SIZE).transpose(0, 2, 1, 3)
        for b in range(batch):
            k, v = (cache[b] for cache in decoder.expected.values())
            expected = attended(q[b], k, v, valid[b], causal=bool(attributes.get("is_causal")),
                                window=attributes.get("left_window_size", -1) + 1,
                                cap=attributes.get("softcap", 0.0))
            assert np.isfinite(expected).all()
            assert_allclose(y[b], expected, rtol=2e-5, atol=2e-6)
        starts = starts + steps
    for name, cache in decoder.caches().items():
        np.testing.assert_array_equal(cache, decoder.expected[name])


def test_no_valid_rows(context: MLContext):
    """These queries give 0."""
    decoder = Decoder(context, attention_24(2, 1, False), 2)
    rows = np.ones((2, HEADS, 1, SIZE), np.float32)
    y = decoder.run(
        q=np.ones((2, HEADS * GROUP, 1, SIZE), np.float32), row_k=rows, row_v=3 * rows,
        starts=np.array([0, 5]), valid=np.array([1, 0]),
    )
    assert_allclose(y[0], 3, rtol=1e-6)
    assert not y[1].any()


@pytest.mark.parametrize("donate", [None, DONATED])
def test_what_the_record_does_not_take_is_expanded(context: MLContext, donate):
    """A mask, or a cache that is not donated: ONNX's own definition."""
    proto = attention_24(1, 1, False)
    node = proto.graph.node[-1]
    node.input[3] = "mask" if donate else ""
    if donate:
        proto.graph.input.append(info("mask", [1, CAPACITY], TensorProto.FLOAT))
    graph = load(proto, context, donate=donate).result()
    assert not any("of a length" in step.variant for step in graph.report().steps)
    rng = np.random.default_rng(1)
    shape = (1, HEADS, CAPACITY, SIZE)
    feeds = {name: rng.normal(size=shape).astype(np.float32) for name in DONATED}
    feeds |= {f"row_{p}": rng.normal(size=(1, HEADS, 1, SIZE)).astype(np.float32) for p in "kv"}
    feeds["q"] = rng.normal(size=(1, HEADS * GROUP, 1, SIZE)).astype(np.float32)
    feeds |= {"starts": np.array([4]), "valid": np.array([5])}
    hidden = 3 if donate else 0
    if donate:
        feeds["mask"] = np.zeros((1, CAPACITY), np.float32)
        feeds["mask"][0, :hidden] = -np.inf
    result = context.compute(graph, feeds)
    k, v = result["new_k"][0], result["new_v"][0]
    expected = attended(feeds["q"][0], k[:, hidden:], v[:, hidden:], 5 - hidden)
    assert_allclose(result["y"][0], expected, rtol=2e-5, atol=2e-6)


def group_query(batch, steps, **attributes):
    cache = [batch, HEADS, CAPACITY, SIZE]
    node = helper.make_node(
        "GroupQueryAttention", ["q", "row_k", "row_v", "past_k", "past_v", "lengths", "total"],
        ["y", "new_k", "new_v"], domain="com.microsoft", num_heads=HEADS * GROUP,
        kv_num_heads=HEADS, **attributes,
    )
    inputs = [info("q", [batch, steps, HEADS * GROUP * SIZE]), info("lengths", [batch], INT),
              info("total", [1], INT)]
    for part in "kv":
        inputs += [info(f"row_{part}", [batch, steps, HEADS * SIZE]), info(f"past_{part}", cache)]
    outputs = [info("y", [batch, steps, HEADS * GROUP * SIZE]), info("new_k", cache),
               info("new_v", cache)]
    return model([node], inputs, outputs, opset=21, microsoft=True)


@pytest.mark.parametrize(("batch", "attributes"), [
    (1, {}), (3, {"softcap": 1.5}), (2, {"local_window_size": 4}),
])
def test_group_query_attention(context: MLContext, batch, attributes):
    """A prompt, of a length of its own for each sequence, then tokens: one graph for each number of
    steps. The total length is an input that needs no value at import."""
    prompt = Decoder(context, group_query(batch, 5, **attributes), batch)
    step = Decoder(context, group_query(batch, 1, **attributes), batch)
    step.expected = prompt.expected
    for decoder in (prompt, step):
        decoder.check_report()
    rng = np.random.default_rng(3)
    lengths = 5 - np.arange(batch)  # shorter prompts are filled up
    for turn in range(4):
        decoder, steps = (prompt, 5) if turn == 0 else (step, 1)
        starts = np.zeros(batch, int) if turn == 0 else lengths - 1
        q = rng.normal(size=(batch, HEADS * GROUP, steps, SIZE)).astype(np.float32)
        rows = rng.normal(size=(2, batch, HEADS, steps, SIZE)).astype(np.float32)
        for cache, new in zip(decoder.expected.values(), rows, strict=True):
            for b in range(batch):
                cache[b, :, starts[b] : starts[b] + steps] = new[b]
        flat = [t.transpose(0, 2, 1, 3).reshape(batch, steps, -1) for t in (q, *rows)]
        y = decoder.run(
            q=flat[0], row_k=flat[1], row_v=flat[2], lengths=(lengths - 1).astype(np.int32),
            total=np.array([lengths.max()], np.int32),
        ).reshape(batch, steps, -1, SIZE).transpose(0, 2, 1, 3)
        for b in range(batch):
            k, v = (cache[b] for cache in decoder.expected.values())
            own = min(steps, lengths[b])  # the results of what fills up mean nothing
            expected = attended(q[b][:, :own], k, v, lengths[b],
                                window=attributes.get("local_window_size", 0),
                                cap=attributes.get("softcap", 0.0))
            assert np.isfinite(expected).all()
            assert_allclose(y[b][:, :own], expected, rtol=2e-5, atol=2e-6)
        if turn == 0:
            step.given = prompt.caches()
        lengths = lengths + 1
    for name, cache in step.caches().items():
        np.testing.assert_array_equal(cache, step.expected[name])


def test_without_donation_the_total_length_is_needed(context: MLContext):
    with pytest.raises(UnsupportedModelError, match="'total'"):
        load(group_query(1, 1), context).result()


def test_wrong_donations(context: MLContext):
    for donate, message in (
        ({"past": "new_k"}, "donate names 'past'"), ({"past_k": "y"}, "must be equal"),
        (3, "donate"),
    ):
        with pytest.raises(TypeError, match=message):
            load(group_query(1, 1), context, inputs={"total": np.array([9], np.int32)},
                 donate=donate).result()
