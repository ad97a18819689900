"""PyTorch's attention with a boolean mask, as its exporters write it to ONNX."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, TensorProto, helper

from tests.support.onnx_models import info, model


def exported(exporter: str, mask: tuple[int, ...], kind: int, heads: int = 4) -> ModelProto:
    """``scaled_dot_product_attention(q, k, v, attn_mask=seen)`` as PyTorch's exporters write it:
    "TorchScript" (symbolic_opset14), with the scale computed from the shape and constants of one
    element, or "dynamo" (torchlib), with scalars. Both write 0 where the softmax is NaN because a
    query sees no key."""
    node, dtype = helper.make_node, helper.tensor_dtype_to_np_dtype(kind)
    one = (1,) if exporter == "TorchScript" else ()
    constants = {
        "zero": np.zeros(one, dtype), "low": np.full(one, -np.inf, dtype),
        "repeat": np.array([2, 4, 2, 5, 8]), "all": np.array([2, 4 * 2, 5, 8]),
        "two": np.array([2]),
    }
    if exporter == "TorchScript":
        last, beyond = np.array([-1]), np.array([2**63 - 1])
        constants |= {"last": last, "beyond": beyond, "number": np.ones(1, np.float32)}
        nodes = [
            node("Shape", ["q"], ["shape"]),
            node("Slice", ["shape", "last", "beyond"], ["width"]),
            node("Cast", ["width"], ["wide"], to=TensorProto.FLOAT),
            node("Sqrt", ["wide"], ["root"]),
            node("Div", ["number", "root"], ["scale32"]),
            node("Cast", ["scale32"], ["scale"], to=kind),
            node("Sqrt", ["scale"], ["half"]),
        ]
    else:
        constants |= {"scale": np.array(8**-0.5, dtype)}
        nodes = [node("Sqrt", ["scale"], ["half"])]
    keys, values = "k", "v"
    if heads != 8:
        for name in "kv":
            nodes += [
                node("Unsqueeze", [name, "two"], [f"{name}1"]),
                node("Expand", [f"{name}1", "repeat"], [f"{name}2"]),
                node("Reshape", [f"{name}2", "all"], [f"{name}3"]),
            ]
        keys, values = "k3", "v3"
    nodes += [
        node("Transpose", [keys], ["kt"], perm=[0, 1, 3, 2]),
        node("Mul", ["q", "half"], ["qs"]),
        node("Mul", ["kt", "half"], ["ks"]),
        node("MatMul", ["qs", "ks"], ["scores"]),
        node("Where", ["seen", "zero", "low"], ["mask"]),
        node("Add", ["scores", "mask"], ["masked"]),
        node("Softmax", ["masked"], ["weights"], axis=-1),
        node("IsNaN", ["weights"], ["nothing"]),
        node("Where", ["nothing", "zero", "weights"], ["safe"]),
        node("MatMul", ["safe", values], ["y"]),
    ]
    own = [2, heads, 5, 8]
    return model(
        nodes,
        [info("q", [2, 8, 3, 8], kind), info("k", own, kind), info("v", own, kind),
         info("seen", mask, TensorProto.BOOL)],
        [info("y", [2, 8, 3, 8], kind)], constants, opset=18,
    )


def seen_by(mask: tuple[int, ...]) -> np.ndarray:
    """A random mask with queries that see nothing, and some that see all keys."""
    seen = np.random.default_rng(3).integers(0, 2, mask).astype(np.uint8)
    seen[..., -1, :] = 1
    if mask[-2] > 1:
        seen[..., 0, :] = 0
    else:
        seen[0] = 0
    return seen
