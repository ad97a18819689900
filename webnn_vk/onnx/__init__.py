"""ONNX models on WebNN: ``load`` a model as a graph, ``Session`` for changing shapes, ``export``
a graph as a model.

Needs the extra ``onnx``. Each operator has a record (``records.py``, ``ops/``). Operators without
one are expanded by ONNX's function bodies, if they have any. Values that depend only on known
values (mostly shape arithmetic) are computed at import. Imports `api/` and the folders below it.
"""

from __future__ import annotations

from webnn_vk.support import packages

if _missing := packages.problem("webnn_vk.onnx needs", "onnx"):
    raise packages.MissingPackages(_missing)

from .binding import IOBinding
from .errors import InvalidModelError, Problem, UnsupportedModelError
from .exporting import export
from .importing import Requirement, build_operands, load, requirements
from .node_args import ModelMetadata, NodeArg
from .session import Session

__all__ = [
    "IOBinding",
    "InvalidModelError",
    "ModelMetadata",
    "NodeArg",
    "Problem",
    "Requirement",
    "Session",
    "UnsupportedModelError",
    "build_operands",
    "export",
    "load",
    "requirements",
]
