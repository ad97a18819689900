"""The keys that causal queries see: fewer and more keys than queries, keys before them, padding."""

import numpy as np
import pytest

from tests.support.discriminating import assert_allclose
from tests.support.onnx_models import reference
from tests.support.onnx_nodes import Draws, Node, check

pytest.importorskip("onnxruntime")
#: Queries, keys, keys before both.
LENGTHS = [(3, 3, 0), (3, 5, 0), (5, 3, 0), (2, 4, 2), (4, 2, 3), (1, 4, 0), (1, 4, 3), (2, 2, 3)]
#: Left of a shorter sequence there is padding: its first queries see nothing else.
LEFT = np.array([[0, 1, 1, 1], [0, 0, 0, 1]], np.int32)


def named(lengths):
    return "{} queries, {} keys, {} before".format(*lengths)


def rows(draw, lengths, size=4, batch=2):
    """Queries, keys and values as [batch, steps, hidden], keys and values before as heads."""
    queries, keys, before = lengths
    made = [draw(batch, n, 2 * size) for n in (queries, keys, keys)]
    return made, [draw(batch, 2, before, size) for _ in range(2)] if before else []


@pytest.mark.parametrize("lengths", LENGTHS, ids=named)
def test_microsoft(context, lengths):
    (q, k, v), past = rows(Draws().normal, lengths)
    check(Node(
        "MultiHeadAttention", [q, k, v, *([None] * 3 if past else []), *past],
        {"num_heads": 2, "unidirectional": 1}, 3 if past else 1,
    ), context)


@pytest.mark.parametrize("opset", [23, 24])
@pytest.mark.parametrize("lengths", LENGTHS, ids=named)
def test_standard(context, lengths, opset):
    """By ONNX's reference implementation: ONNX Runtime lets a single query behind others see all
    keys, more than in the definition."""
    given, past = rows(Draws().normal, lengths)
    node = Node(
        "Attention", [*given, *([None] if past else []), *past],
        {"q_num_heads": 2, "kv_num_heads": 2, "is_causal": 1}, 3 if past else 1, "", opset=opset,
    )
    expected = reference(node.model(), {"i0": given[0]})
    for got, want in zip(node.here(context), expected, strict=True):
        assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("past", [0, 2])
@pytest.mark.parametrize("scale", [1, 300])
@pytest.mark.parametrize("low", [-10000.0, -3.4e38])
def test_padding_before_a_sequence(context, low, scale, past):
    """A query that sees only padding sees that, and nothing later; the size of the scores changes
    nothing."""
    draw = Draws().normal
    attributes = {"num_heads": 2, "unidirectional": 1, "mask_filter_value": low}
    given, before = rows(draw, (4, 4, past))
    given = [scale * given[0], *given[1:]]
    mask = np.concatenate([np.zeros((2, past), np.int32), LEFT], 1)
    check(Node(
        "MultiHeadAttention", [*given, None, mask, *([None] if before else []), *before],
        attributes, 3 if past else 1,
    ), context)
    inputs = [scale * draw(2, 4, 8), draw(8, 24), draw(24), mask]
    if past:
        inputs.append(draw(2, 2, 2, past, 4))
    check(Node("Attention", inputs, attributes, 2 if past else 1), context)


@pytest.mark.parametrize("window", [-1, 2])
@pytest.mark.parametrize(("steps", "before"), [(4, 0), (1, 5), (3, 5)])
def test_grouped_heads(context, steps, before, window):
    given, past = rows(Draws().normal, (steps, steps, before), size=8, batch=1)
    check(Node(
        "GroupQueryAttention",
        [*given, *(past or [None, None]), np.array([before + steps - 1], np.int32),
         np.array(before + steps, np.int32)],
        {"num_heads": 2, "kv_num_heads": 2, "local_window_size": window}, 3,
    ), context)
