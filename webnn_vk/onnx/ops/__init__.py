"""The operators that the importer maps, by family; importing this fills the table of records."""

from . import (  # noqa: F401
    attention,
    bits,
    control,
    convolution,
    elementwise,
    gather,
    linear,
    movement,
    normalization,
    pooling,
    quantized,
    recurrent,
    reduction,
    resize,
    sampling,
    selection,
    sequence,
    shape,
    signal,
    trigonometry,
)
