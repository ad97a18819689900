"""LSTMs and GRUs in ncnn (`pip install ncnn`), on the CPU: its Vulkan part has no such layers."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

#: Our order of the gates in ncnn's: lstm "iofg" in input, forget, output, cell; gru "zrn" in reset,
#: update, new.
_GATES = {"lstm": (0, 2, 1, 3), "gru": (1, 0, 2)}


def runner(
    kind: str, x: np.ndarray, weight: np.ndarray, recurrent: np.ndarray, bias: np.ndarray
) -> Callable[[], np.ndarray] | None:
    """A function that computes the layer of these WebNN operands on ``x`` (steps, batch, inputs)
    and returns the outputs of all steps (steps, directions, batch, units): one sequence of the
    batch after the other, since ncnn has no batches. None where ncnn is not installed."""
    try:
        import ncnn
    except ImportError:
        return None
    directions, _, units = recurrent.shape
    weight, recurrent, bias = (_in_order(kind, a) for a in (weight, recurrent, bias))
    if kind == "gru":  # the fourth is the new gate's recurrent bias
        bias = np.concatenate([bias, np.zeros((directions, units), np.float32)], 1)
    net: Any = ncnn.Net()
    with tempfile.TemporaryDirectory() as folder:
        param, model = Path(folder, "layer.param"), Path(folder, "layer.bin")
        param.write_text(
            "7767517\n2 2\nInput x 0 1 x\n"
            f"{kind.upper()} layer 1 1 x y 0={units} 1={weight.size} 2={2 * (directions - 1)}\n"
        )
        # Weights follow a tag that says that they are float32.
        model.write_bytes(b"".join(bytes(4) + a.tobytes() for a in (weight, bias, recurrent)))
        net.load_param(str(param))
        net.load_model(str(model))
    steps, batch, _ = x.shape
    sequences = [np.ascontiguousarray(x[:, row]) for row in range(batch)]

    def run() -> np.ndarray:
        result = np.empty((steps, directions, batch, units), np.float32)
        for row, sequence in enumerate(sequences):
            extractor = net.create_extractor()
            extractor.input("x", ncnn.Mat(sequence))
            _, y = extractor.extract("y")
            result[:, :, row] = np.asarray(y).reshape(steps, directions, units)
        return result

    return run


def _in_order(kind: str, array: np.ndarray) -> np.ndarray:
    """Weights or biases (directions, gates × units, …) with the gates in ncnn's order."""
    order = _GATES[kind]
    shape = array.shape
    gates = array.reshape(shape[0], len(order), -1, *shape[2:])[:, list(order)]
    return np.ascontiguousarray(gates.reshape(shape))
