"""Runs `webnn-vk` in this process, and makes small models for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from webnn_vk.tools import cli


class Command:
    """Runs a command: exit status, stdout and stderr."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: Any) -> tuple[int, str, str]:
        self._capsys.readouterr()
        status = cli.main([str(argument) for argument in arguments])
        captured = self._capsys.readouterr()
        return status, captured.out, captured.err

    def json(self, *arguments: Any, status: int = 0) -> Any:
        """Output of a command with `--json`, which is alone on stdout."""
        got, out, err = self(*arguments, "--json")
        assert got == status, err
        return json.loads(out)


def write_model(path: Path, nodes: list[Any], inputs: dict[str, list[Any]],
                outputs: dict[str, list[Any]], constants: dict[str, np.ndarray],
                types: dict[str, int] | None = None) -> Path:
    """An ONNX file; inputs and outputs are float32 unless `types` says otherwise."""

    def infos(ports: dict[str, list[Any]]) -> list[Any]:
        return [helper.make_tensor_value_info(n, (types or {}).get(n, TensorProto.FLOAT), s)
                for n, s in ports.items()]

    graph = helper.make_graph(
        nodes, "g", infos(inputs), infos(outputs),
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opset = helper.make_opsetid("", 20)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=10), path)
    return path


def affine(path: Path, shape: list[Any] | None = None, input: str = "x") -> Path:
    """y = 2 x + 1 on [batch, 3, height, width]."""
    shape = shape or ["batch", 3, "height", "width"]
    nodes = [helper.make_node("Mul", [input, "two"], ["t"]),
             helper.make_node("Add", ["t", "one"], ["y"])]
    constants = {"two": np.float32(2).reshape(()), "one": np.float32(1).reshape(())}
    return write_model(path, nodes, {input: shape}, {"y": shape},
                       {n: np.asarray(a) for n, a in constants.items()})
