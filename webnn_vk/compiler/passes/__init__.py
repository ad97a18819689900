"""Graph to graph: the passes, the pipeline that runs them, and the declarations of rewrites.
Imports `ir/` and the folders below it."""

from .activations import FUSE_ACTIVATIONS
from .attention import FUSE_ATTENTION
from .dead_code import DEAD_CODE, remove_dead_code
from .decompose import DECOMPOSE, by_specification, decompose_nodes
from .dump import Dump
from .empty import require_result, without_empty
from .fold import FOLD
from .fold_batch_norm import FOLD_BATCH_NORM
from .fold_pad import FOLD_PAD
from .integer_products import INTEGER_PRODUCTS
from .join_products import JOIN_PRODUCTS
from .layout import LAYOUT
from .legalize import LEGALIZE
from .norms import FUSE_NORMS
from .pipeline import Compilation, Pass, check_skipped, run_passes
from .place import ORDER, PLACE
from .quantized import FUSE_DEQUANTIZE
from .unread_pixels import UNREAD_PIXELS

# From the builder's graph to placed nodes. The CPU device skips most passes, so that its results
# stay a reference for them.
DEVICE_PASSES = (
    # Quantized weights first, before folding makes floats of them; again after folding, which may
    # have computed their scales.
    DEAD_CODE, LEGALIZE, INTEGER_PRODUCTS, FUSE_DEQUANTIZE, FOLD, INTEGER_PRODUCTS, FUSE_DEQUANTIZE,
    DECOMPOSE, FOLD, LAYOUT, FOLD_PAD, FOLD_BATCH_NORM, FUSE_NORMS, FUSE_ACTIVATIONS,
    FUSE_ATTENTION, JOIN_PRODUCTS, UNREAD_PIXELS, PLACE,
)
HOST_PASSES = (DEAD_CODE, LEGALIZE, FOLD, PLACE)
