"""ONNX models on WebNN: ``load`` a model as a graph, ``Session`` for changing shapes, ``export``
a graph as a model.

Needs the extra ``onnx``. Each operator has a record (``records.py``, ``ops/``). Operators without
one are expanded by ONNX's function bodies, if they have any. Values that depend only on known
values (mostly shape arithmetic) are computed at import. Imports `api/` and the folders below it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from webnn_vk.support import packages
from webnn_vk.support.lazy_names import lazy_names

if _missing := packages.problem("webnn_vk.onnx needs", "onnx"):
    raise packages.MissingPackages(_missing)

from .errors import InvalidModelError, Problem, UnsupportedModelError
from .importing import Requirement, build_operands, load, requirements
from .node_args import ModelMetadata, NodeArg

if TYPE_CHECKING:
    from .binding import IOBinding as IOBinding
    from .exporting import export as export
    from .session import Session as Session

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

# Loaded on first use: `load` needs none of them.
_MODULE_OF = {"IOBinding": "binding", "Session": "session", "export": "exporting"}

__getattr__ = lazy_names(globals(), _MODULE_OF)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
