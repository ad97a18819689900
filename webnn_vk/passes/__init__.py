"""Graph to graph: folding, dead code, decomposition, placement, element-wise fusion."""

from .dead_code import remove_dead_code
from .decompose import decompose
from .fold import fold_constants
from .fusion import fuse_elementwise
from .place import Placement, place, schedule

__all__ = [
    "Placement",
    "decompose",
    "fold_constants",
    "fuse_elementwise",
    "place",
    "remove_dead_code",
    "schedule",
]
