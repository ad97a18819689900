"""Models on many machines, by engines that users have: Ray (``webnn_vk.distributed.ray`` and
``.serve``, extra ``ray``) and Spark (``.spark``, extra ``spark``).

``assigned_device`` says which device the engine assigned to a worker (docs/distributed.md).
Imports `onnx/` and the folders below it.
"""

from __future__ import annotations

from .assignment import assigned_device
from .rows import RowError

__all__ = ["RowError", "assigned_device"]
