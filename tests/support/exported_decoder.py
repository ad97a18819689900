"""A decoder as ONNX Runtime GenAI exports them, in small."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from .onnx_models import info, model

LAYERS, HEADS, KV, SIZE, VOCABULARY = 2, 6, 2, 16, 40
WIDTH = HEADS * SIZE
INT, LONG = TensorProto.INT32, TensorProto.INT64
CACHE = [1, KV, "past_sequence_length", SIZE]
PASTS = [f"past_key_values.{n}.{part}" for n in range(LAYERS) for part in ("key", "value")]
PRESENTS = [name.replace("past_key_values", "present") for name in PASTS]
DONATED = dict(zip(PASTS, PRESENTS, strict=True))


def decoder():
    """The valid length is the sum of the mask. GroupQueryAttention rotates queries and keys and
    writes the cache."""
    rng = np.random.default_rng(5)
    angles = np.arange(64)[:, None] * 100.0 ** (-np.arange(SIZE // 2) / (SIZE // 2))
    constants = {
        "words": rng.normal(size=(VOCABULARY, WIDTH)), "cos": np.cos(angles), "sin": np.sin(angles),
    }
    node = helper.make_node
    nodes = [
        node("ReduceSum", ["attention_mask", "axes"], ["count"], keepdims=0),
        node("Sub", ["count", "one"], ["last"]),
        node("Cast", ["last"], ["seqlens"], to=INT),
        node("Shape", ["attention_mask"], ["mask_shape"]),
        node("Gather", ["mask_shape", "axis"], ["total_long"]),
        node("Cast", ["total_long"], ["total"], to=INT),
        node("Gather", ["words", "input_ids"], ["h0"]),
    ]
    for n in range(LAYERS):
        sizes = {"q": WIDTH, "k": KV * SIZE, "v": KV * SIZE, "o": WIDTH}
        for part, size in sizes.items():
            constants[f"{part}{n}"] = rng.normal(size=(WIDTH, size)) * 0.15
            if part != "o":
                nodes.append(node("MatMul", [f"h{n}", f"{part}{n}"], [f"{part}_{n}"]))
        nodes += [
            node("GroupQueryAttention",
                 [f"q_{n}", f"k_{n}", f"v_{n}", *PASTS[2 * n : 2 * n + 2], "seqlens", "total",
                  "cos", "sin"],
                 [f"a_{n}", *PRESENTS[2 * n : 2 * n + 2]], domain="com.microsoft",
                 num_heads=HEADS, kv_num_heads=KV, do_rotary=1),
            node("MatMul", [f"a_{n}", f"o{n}"], [f"r_{n}"]),
            node("Add", [f"h{n}", f"r_{n}"], [f"h{n + 1}"]),
        ]
    nodes.append(node("MatMul", [f"h{LAYERS}", "head"], ["logits"]))
    constants["head"] = rng.normal(size=(WIDTH, VOCABULARY)) * 0.15
    weights = {name: array.astype(np.float32) for name, array in constants.items()}
    weights |= {"axes": np.array([1]), "one": np.array([1]), "axis": np.array(1)}
    total = [1, KV, "total_sequence_length", SIZE]
    return model(
        nodes,
        [info("input_ids", [1, "sequence_length"], LONG),
         info("attention_mask", [1, "total_sequence_length"], LONG),
         *(info(name, CACHE) for name in PASTS)],
        [info("logits", [1, "sequence_length", VOCABULARY]),
         *(info(name, total) for name in PRESENTS)],
        weights, opset=21, microsoft=True,
    )
