"""ONNX Runtime's operators of attention: masks, caches, heads in groups, rotations."""

import numpy as np
import pytest
from onnx import ValueInfoProto, helper

from tests.support.discriminating import assert_allclose
from tests.support.onnx_models import info, model
from tests.support.onnx_nodes import SIGNED_ZERO, SMALL, ZERO, Draws, Node, check, runtime
from webnn_vk.onnx import Session

pytest.importorskip("onnxruntime")
DRAWS = Draws()
normal, byte, signed, mask = DRAWS.normal, DRAWS.byte, DRAWS.signed, DRAWS.mask
MASK = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)

CASES = {
    "Attention": Node(
        "Attention", [normal(2, 4, 8), normal(8, 24), normal(24), np.array([3, 4], np.int32)],
        {"num_heads": 2},
    ),
    "Attention causal with past": Node(
        "Attention", [normal(1, 3, 8), normal(8, 24), normal(24), None, normal(2, 1, 2, 2, 4)],
        {"num_heads": 2, "unidirectional": 1}, 2,
    ),
    "MultiHeadAttention": Node(
        "MultiHeadAttention", [normal(2, 3, 8), normal(2, 4, 8), normal(2, 4, 8), normal(24)],
        {"num_heads": 2},
    ),
    "RotaryEmbedding": Node(
        "RotaryEmbedding",
        [normal(1, 3, 8), np.array([[0, 1, 2]]), normal(6, 2), normal(6, 2)], {"num_heads": 2},
    ),
    "GroupQueryAttention": Node(
        "GroupQueryAttention",
        [normal(1, 3, 16), normal(1, 3, 8), normal(1, 3, 8), None, None, np.array([2], np.int32),
         np.array(3, np.int32)],
        {"num_heads": 2, "kv_num_heads": 1}, 3,
    ),
    "GroupQueryAttention, packed, rotary, with a past": Node(
        "GroupQueryAttention",
        [normal(1, 1, 64), None, None, normal(1, 1, 5, 16), normal(1, 1, 5, 16),
         np.array([5], np.int32), np.array(6, np.int32), normal(9, 8), normal(9, 8)],
        {"num_heads": 2, "kv_num_heads": 1, "do_rotary": 1}, 3,
    ),
    "QAttention": Node(
        "QAttention",
        [byte(1, 4, 8), signed(8, 24), normal(24), SMALL, SMALL, None, ZERO, SIGNED_ZERO],
        {"num_heads": 2}, bound=1e-4,
    ),
    "Attention, 2d": Node(
        "Attention", [normal(2, 4, 8), normal(8, 24), normal(24), MASK], {"num_heads": 2}
    ),
    "Attention, 2d uni": Node(
        "Attention",
        [normal(2, 4, 8), normal(8, 24), normal(24), MASK],
        {"num_heads": 2, "unidirectional": 1},
    ),
    "Attention, 3d": Node(
        "Attention", [normal(2, 4, 8), normal(8, 24), normal(24), mask(2, 4, 4)], {"num_heads": 2}
    ),
    "Attention, 1d2": Node(
        "Attention",
        [normal(2, 4, 8), normal(8, 24), normal(24), np.array([3, 4, 1, 0], np.int32)],
        {"num_heads": 2},
    ),
    "Attention, bias": Node(
        "Attention",
        [normal(2, 4, 8), normal(8, 24), normal(24), None, None, normal(1, 2, 4, 4)],
        {"num_heads": 2},
    ),
    "Attention, sizes": Node(
        "Attention",
        [normal(2, 4, 8), normal(8, 28), normal(28)],
        {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 12]},
    ),
    "Attention, past2": Node(
        "Attention",
        [
            normal(2, 3, 8),
            normal(8, 24),
            normal(24),
            np.array([[1] * 5, [1, 1, 1, 1, 0]], np.int32),
            normal(2, 2, 2, 2, 4),
        ],
        {"num_heads": 2, "unidirectional": 1},
        2,
    ),
    "MultiHeadAttention, MASK": Node(
        "MultiHeadAttention",
        [normal(2, 3, 8), normal(2, 4, 8), normal(2, 4, 8), None, MASK],
        {"num_heads": 2},
    ),
    "MultiHeadAttention, mask1": Node(
        "MultiHeadAttention",
        [normal(2, 3, 8), normal(2, 4, 8), normal(2, 4, 8), None, np.array([3, 4], np.int32)],
        {"num_heads": 2},
    ),
    "MultiHeadAttention, mask3": Node(
        "MultiHeadAttention",
        [normal(2, 3, 8), normal(2, 4, 8), normal(2, 4, 8), None, mask(2, 3, 4)],
        {"num_heads": 2},
    ),
    "MultiHeadAttention, present": Node(
        "MultiHeadAttention",
        [
            normal(2, 3, 8),
            normal(2, 3, 8),
            normal(2, 3, 8),
            normal(24),
            None,
            None,
            normal(2, 2, 5, 4),
            normal(2, 2, 5, 4),
        ],
        {"num_heads": 2},
        3,
    ),
    "MultiHeadAttention, cross": Node(
        "MultiHeadAttention",
        [normal(2, 3, 8), normal(2, 2, 4, 4), normal(2, 2, 4, 4), None],
        {"num_heads": 2},
    ),
    "MultiHeadAttention, cross bias": Node(
        "MultiHeadAttention",
        [normal(2, 3, 8), normal(2, 2, 4, 4), normal(2, 2, 4, 4), normal(24)],
        {"num_heads": 2},
    ),
    "MultiHeadAttention, uni": Node(
        "MultiHeadAttention",
        [normal(2, 3, 8), normal(2, 3, 8), normal(2, 3, 8)],
        {"num_heads": 2, "unidirectional": 1},
    ),
    "MultiHeadAttention, abias": Node(
        "MultiHeadAttention",
        [normal(2, 3, 8), normal(2, 3, 8), normal(2, 3, 8), None, None, normal(2, 1, 3, 3)],
        {"num_heads": 2},
    ),
    "MultiHeadAttention, v differs": Node(
        "MultiHeadAttention", [normal(2, 3, 8), normal(2, 3, 8), normal(2, 3, 12)], {"num_heads": 2}
    ),
    "RotaryEmbedding, interleaved": Node(
        "RotaryEmbedding",
        [normal(2, 3, 16), np.array([[0, 1, 2], [4, 5, 3]]), normal(6, 4), normal(6, 4)],
        {"interleaved": 1},
    ),
    "RotaryEmbedding, offset": Node(
        "RotaryEmbedding", [normal(2, 3, 16), np.array([2]), normal(6, 4), normal(6, 4)]
    ),
    "RotaryEmbedding, partial3": Node(
        "RotaryEmbedding",
        [normal(2, 3, 32), np.array([[0, 1, 2], [4, 5, 3]]), normal(6, 4), normal(6, 4)],
        {"rotary_embedding_dim": 8, "num_heads": 2},
    ),
    "GroupQueryAttention, window": Node(
        "GroupQueryAttention",
        [
            normal(1, 6, 16),
            normal(1, 6, 8),
            normal(1, 6, 8),
            None,
            None,
            np.array([5], np.int32),
            np.array(6, np.int32),
        ],
        {"num_heads": 2, "kv_num_heads": 1, "local_window_size": 3},
        3,
    ),
    "GroupQueryAttention, window past": Node(
        "GroupQueryAttention",
        [
            normal(1, 1, 16),
            normal(1, 1, 8),
            normal(1, 1, 8),
            normal(1, 1, 7, 8),
            normal(1, 1, 7, 8),
            np.array([7], np.int32),
            np.array(8, np.int32),
        ],
        {"num_heads": 2, "kv_num_heads": 1, "local_window_size": 3},
        3,
    ),
    "GroupQueryAttention, softcap": Node(
        "GroupQueryAttention",
        [
            normal(1, 3, 16),
            normal(1, 3, 8),
            normal(1, 3, 8),
            None,
            None,
            np.array([2], np.int32),
            np.array(3, np.int32),
        ],
        {"num_heads": 2, "kv_num_heads": 1, "softcap": 2.0},
        3,
    ),
    "GroupQueryAttention, smooth": Node(
        "GroupQueryAttention",
        [
            normal(1, 3, 16),
            normal(1, 3, 8),
            normal(1, 3, 8),
            None,
            None,
            np.array([2], np.int32),
            np.array(3, np.int32),
        ],
        {"num_heads": 2, "kv_num_heads": 1, "smooth_softmax": 1},
        3,
    ),
    "GroupQueryAttention, batch": Node(
        "GroupQueryAttention",
        [
            normal(2, 3, 16),
            normal(2, 3, 8),
            normal(2, 3, 8),
            None,
            None,
            np.array([2, 2], np.int32),
            np.array(3, np.int32),
        ],
        {"num_heads": 2, "kv_num_heads": 1},
        3,
    ),
    "GroupQueryAttention, bias": Node(
        "GroupQueryAttention",
        [
            normal(1, 3, 16),
            normal(1, 3, 8),
            normal(1, 3, 8),
            None,
            None,
            np.array([2], np.int32),
            np.array(3, np.int32),
            None,
            None,
            None,
            normal(1, 2, 3, 3),
        ],
        {"num_heads": 2, "kv_num_heads": 1},
        3,
    ),
    "QAttention, mask": Node(
        "QAttention",
        [
            byte(2, 4, 8),
            signed(8, 24),
            normal(24),
            SMALL,
            SMALL,
            np.array([3, 4], np.int32),
            ZERO,
            SIGNED_ZERO,
        ],
        {"num_heads": 2},
        bound=1e-4,
    ),
    "QAttention, MASK": Node(
        "QAttention",
        [byte(2, 4, 8), signed(8, 24), normal(24), SMALL, SMALL, MASK, ZERO, SIGNED_ZERO],
        {"num_heads": 2, "unidirectional": 1},
        bound=1e-4,
    ),
    "QAttention, past": Node(
        "QAttention",
        [
            byte(1, 3, 8),
            signed(8, 24),
            normal(24),
            SMALL,
            SMALL,
            None,
            ZERO,
            SIGNED_ZERO,
            normal(2, 1, 2, 2, 4),
        ],
        {"num_heads": 2, "unidirectional": 1},
        2,
        bound=1e-4,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_operators(context, name):
    check(CASES[name], context)


@pytest.mark.parametrize("window", [-1, 3])
@pytest.mark.parametrize("interleaved", [0, 1])
def test_prompts_of_different_lengths(context, interleaved, window):
    """Values after the end of a shorter sequence change nothing before it; their own results are
    meaningless."""
    normal, lengths = Draws().normal, [6, 4, 1]
    inputs = [
        normal(3, 6, 64), normal(3, 6, 32), normal(3, 6, 32), None, None,
        np.array(lengths, np.int32) - 1, np.array(6, np.int32), normal(9, 8), normal(9, 8),
    ]
    attributes = {
        "num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "rotary_interleaved": interleaved,
        "local_window_size": window,
    }
    got, expected = Node("GroupQueryAttention", inputs, attributes, 3).results(context)
    for ours, theirs in zip(got, expected, strict=True):
        for row, length in enumerate(lengths):
            places = (row, slice(length)) if ours.ndim == 3 else (row, slice(None), slice(length))
            assert_allclose(ours[places], theirs[places], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("attributes", [
    {"do_rotary": 1}, {"do_rotary": 1, "rotary_interleaved": 1, "local_window_size": 3},
    {"softcap": 2.0, "head_sink": 1}, {"causal": 0},
], ids=lambda attributes: ",".join(attributes))
@pytest.mark.parametrize(("steps", "buffer", "total", "lengths"), [
    (1, 5, 6, [6, 4, 1]),  # the cache grows
    (1, 8, 6, [6, 4, 1]),  # it is a buffer
    (1, 8, 8, [8]),
    (3, 8, 7, [7]),  # a later part of a prompt
    (3, 5, 8, [8]),
    (4, 8, 4, [4]),  # a first prompt, into a buffer
], ids=lambda value: "x".join(map(str, value)) if isinstance(value, list) else str(value))
def test_caches_of_different_lengths(context, steps, buffer, total, lengths, attributes):
    """``seqlens_k`` is an input: one graph serves all lengths."""
    normal, batch, attributes = Draws().normal, len(lengths), dict(attributes)
    sink = normal(4) if attributes.pop("head_sink", 0) else None
    inputs = [
        normal(batch, steps, 64), normal(batch, steps, 32), normal(batch, steps, 32),
        normal(batch, 2, buffer, 16), normal(batch, 2, buffer, 16), None,
        np.array(total, np.int32), normal(9, 8), normal(9, 8),
        None, normal(1, 4, steps, total), sink,
    ]
    names = [f"i{i}" if x is not None else "" for i, x in enumerate(inputs)]
    names[5] = "lengths"
    node = helper.make_node(
        "GroupQueryAttention", names, ["o0", "o1", "o2"], domain="com.microsoft", num_heads=4,
        kv_num_heads=2, **attributes,
    )
    proto = model(
        [node],
        [info("i0", inputs[0].shape, 1), info("lengths", [batch], 6)],
        [ValueInfoProto(name=name) for name in node.output],
        {n: x for n, x in zip(names[1:], inputs[1:], strict=True) if x is not None},
        opset=17, microsoft=True,
    )
    theirs_session, session = runtime(proto), Session(proto, context)
    # Without steps of the sequence in its buffer there is nothing to attend to.
    for less in range(2 if steps == 1 and min(lengths) > 1 else 1):
        feeds = {"i0": inputs[0], "lengths": np.array(lengths, np.int32) - 1 - less}
        expected = theirs_session.run(None, feeds)
        for ours, theirs in zip(session.run(None, feeds), expected, strict=True):
            assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    assert len(session._graphs) == 1
