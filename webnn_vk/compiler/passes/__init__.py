"""Graph to graph: the passes, the pipeline that runs them, and the declarations of rewrites.
Imports `ir/` and the folders below it."""

from .activations import FUSE_ACTIVATIONS
from .attention import FUSE_ATTENTION
from .dead_code import DEAD_CODE, remove_dead_code
from .decompose import DECOMPOSE, decompose, expand_nodes
from .dump import Dump
from .fold import FOLD, fold_constants
from .fold_batch_norm import FOLD_BATCH_NORM
from .fold_pad import FOLD_PAD
from .integer_products import INTEGER_PRODUCTS
from .join_products import JOIN_PRODUCTS, join_products
from .layout import LAYOUT, assign_layouts
from .norms import FUSE_NORMS
from .patterns import Anything, Constant, Match, Maybe, OneOf, Op
from .pipeline import Compilation, Notes, Pass, check_skipped, run_passes
from .place import ORDER, PLACE, order, place
from .quantized import FUSE_DEQUANTIZE
from .rewrite import Rewrite, apply_rewrites, rewrite, rewrite_pass

# From the builder's graph to placed nodes. The CPU device skips most passes, so that its results
# stay a reference for them.
DEVICE_PASSES = (
    # Quantized weights first, before folding makes floats of them; again after folding, which may
    # have computed their scales.
    DEAD_CODE, INTEGER_PRODUCTS, FUSE_DEQUANTIZE, FOLD, INTEGER_PRODUCTS, FUSE_DEQUANTIZE,
    DECOMPOSE, FOLD, LAYOUT, FOLD_PAD, FOLD_BATCH_NORM, FUSE_NORMS, FUSE_ACTIVATIONS,
    FUSE_ATTENTION, JOIN_PRODUCTS, PLACE,
)
HOST_PASSES = (DEAD_CODE, FOLD, PLACE)

__all__ = [
    "DEAD_CODE",
    "DECOMPOSE",
    "DEVICE_PASSES",
    "FOLD",
    "FOLD_BATCH_NORM",
    "FOLD_PAD",
    "FUSE_ACTIVATIONS",
    "FUSE_ATTENTION",
    "FUSE_DEQUANTIZE",
    "FUSE_NORMS",
    "HOST_PASSES",
    "INTEGER_PRODUCTS",
    "JOIN_PRODUCTS",
    "LAYOUT",
    "ORDER",
    "PLACE",
    "Anything",
    "Compilation",
    "Constant",
    "Dump",
    "Match",
    "Maybe",
    "Notes",
    "OneOf",
    "Op",
    "Pass",
    "Rewrite",
    "apply_rewrites",
    "assign_layouts",
    "check_skipped",
    "decompose",
    "expand_nodes",
    "fold_constants",
    "join_products",
    "order",
    "place",
    "remove_dead_code",
    "rewrite",
    "rewrite_pass",
    "run_passes",
]
