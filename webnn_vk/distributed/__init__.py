"""Models on many machines, by engines that users have: Ray (``webnn_vk.distributed.ray`` and
``.serve``, extra ``ray``) and Spark (``.spark``, extra ``spark``).

``assigned_device`` says which device the engine assigned to a worker (docs/distributed.md).
"""

from __future__ import annotations

from .assignment import assigned_device
from .rows import RowError

__all__ = ["RowError", "assigned_device"]
