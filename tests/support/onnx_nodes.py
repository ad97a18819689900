"""Models of one ONNX node on arrays, and ONNX Runtime's results for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, ValueInfoProto, helper

from tests.support.onnx_models import info, model
from webnn_vk.onnx import Session

ZERO, SIGNED_ZERO = np.array(120, np.uint8), np.array(3, np.int8)


def scale(value: float) -> np.ndarray:
    return np.array(value, np.float32)


SMALL = scale(0.02)


class Draws:
    """Random arrays, the same ones in each process."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)

    def normal(self, *shape: int) -> np.ndarray:
        return self.rng.normal(size=shape).astype(np.float32)

    def byte(self, *shape: int) -> np.ndarray:
        return self.rng.integers(0, 256, shape).astype(np.uint8)

    def signed(self, *shape: int) -> np.ndarray:
        # Seven bits: with eight, ONNX Runtime's sums of two products saturate on some processors.
        return self.rng.integers(-64, 64, shape).astype(np.int8)

    def integers(self, low: int, high: int, *shape: int) -> np.ndarray:
        return self.rng.integers(low, high, shape).astype(np.int32)

    def mask(self, *shape: int) -> np.ndarray:
        """Zeros and ones; every row sees a key."""
        return (self.rng.random(shape) < 0.6).astype(np.int32) | np.eye(*shape[-2:], dtype=np.int32)


@dataclass(frozen=True)
class Node:
    """A node on arrays (None for an omitted input), the first an input, the others constants.
    ``bound`` is relative to the largest value, for integers absolute."""

    operator: str
    inputs: Sequence[np.ndarray | None]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    domain: str = "com.microsoft"
    bound: float = 1e-5
    opset: int = 17

    def model(self) -> ModelProto:
        names = [f"i{i}" if x is not None else "" for i, x in enumerate(self.inputs)]
        outputs = [f"o{i}" for i in range(self.outputs)]
        arrays = zip(names, self.inputs, strict=True)
        constants = {name: x for name, x in arrays if x is not None and name != "i0"}
        first = self.inputs[0]
        node = helper.make_node(
            self.operator, names, outputs, domain=self.domain, **self.attributes
        )
        return model(
            [node], [info("i0", first.shape, helper.np_dtype_to_tensor_dtype(first.dtype))],
            [ValueInfoProto(name=name) for name in outputs], constants,
            opset=self.opset, microsoft=self.domain != "",
        )

    def here(self, context: Any) -> list[np.ndarray]:
        """The node's results on the context."""
        return Session(self.model(), context).run(None, {"i0": self.inputs[0]})

    def results(
        self, context: Any, threads: int = 0
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The node's results here, and from ONNX Runtime with this number of threads (0: its
        choice)."""
        feeds = {"i0": self.inputs[0]}
        return self.here(context), runtime(self.model(), threads).run(None, feeds)


def runtime(proto: ModelProto, threads: int = 0) -> Any:
    """ONNX Runtime's session on the CPU, without its warnings."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, threads
    return onnxruntime.InferenceSession(
        proto.SerializeToString(), options, ["CPUExecutionProvider"]
    )


def check(node: Node, context: Any) -> None:
    """The node's results on the context equal ONNX Runtime's, within the node's bound."""
    for a, b in zip(*node.results(context), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        error = np.abs(a.astype(np.float64) - b)
        # Bytes may differ by one where a value lies between two.
        whole = a.dtype.kind in "iu"
        assert error.max() <= (node.bound if whole else node.bound * max(1e-30, np.abs(b).max()))
        if whole:
            assert (error > 0).mean() <= 0.1
