"""Graphs as files: the text format of rustnn's webnn-graph, with the weights as safetensors.

Weights need the extra ``webnn``. See docs/webnn-file.md. Imports `api/` and the folders below it.
"""

from __future__ import annotations

from .errors import GraphFileError
from .reading import build_operands, load
from .writing import save

__all__ = ["GraphFileError", "build_operands", "load", "save"]
