"""How an operator is computed on a device, as plain data.

An operator is an element-wise expression, a movement of elements (another access of the same
memory), a view, a composition of other operators, or the work of a kernel family, whose lowering
says what the operator is to it: ``Reduce("sum", finish="mean")``. Kernels and passes read this;
nothing here runs, and no kernel asks for an operator's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ..types.access import Access


@dataclass(frozen=True)
class Elementwise:
    """A GLSL expression for one output element.

    ``expression`` names operands and numeric arguments in braces: ``"w_add({a}, {b})"``. Operands
    stand for values of their arithmetic type, numbers are passed as parameters of the first
    operand's arithmetic type. ``variants`` replaces the expression
    when it depends on arguments or data types: called with (descriptors by operand name,
    output descriptor, arguments), it returns an expression. Operands broadcast to the output.
    ``commutes``: the order of the two operands is all the same, to the last bit. ``limits``: the
    expression is ``w_min(w_max(x, low), high)``; called with the arguments, it returns both.
    """

    expression: str = ""
    variants: Callable[[Mapping[str, Any], Any, Mapping[str, Any]], str] | None = None
    # Operands that are blockwise broadcast (each dimension divides the output's).
    blockwise: tuple[str, ...] = ()
    flops: int = 1
    commutes: bool = False
    limits: Callable[[Mapping[str, Any]], tuple[float, float]] | None = None
    family: ClassVar[str] = "elementwise"

    @property
    def adds(self) -> bool:
        """Whether it is the sum of two operands."""
        return self.expression == "w_add({a}, {b})"


@dataclass(frozen=True)
class View:
    """The output has the input's elements in the same order: no work, a shared buffer."""


@dataclass(frozen=True)
class Decompose:
    """Expressed by other operators: ``expand(emit, operands, arguments, outputs)`` returns the
    output values; ``emit`` offers every operator as a method."""

    expand: Callable[..., Any]


@dataclass(frozen=True)
class Move:
    """The outputs are the input seen through other accesses: ``views(input, outputs, **arguments)``
    gets the input's access and the outputs' shapes and returns an access for each output. Its
    dimensions may be finer than the output's, in the same order."""

    views: Callable[..., Sequence[Access]]
    family: ClassVar[str] = "copy"


@dataclass(frozen=True)
class Join:
    """The operands ``inputs`` lie in the output side by side: ``places(output, inputs,
    **arguments)`` gets the output's access and the inputs' shapes and returns where each goes."""

    places: Callable[..., Sequence[Access]]
    family: ClassVar[str] = "copy"


@dataclass(frozen=True)
class Pad:
    """The input with a border (arguments of `pad`)."""

    family: ClassVar[str] = "pad"


@dataclass(frozen=True)
class Triangular:
    """Matrices masked by a diagonal (arguments of `triangular`)."""

    family: ClassVar[str] = "triangular"


@dataclass(frozen=True)
class Product:
    """alpha · a · b + beta · c over the last two dimensions, the others broadcast. ``transposed``:
    operand → the argument that says whether its last two dimensions are exchanged."""

    transposed: tuple[tuple[str, str], ...] = ()
    family: ClassVar[str] = "matmul"


@dataclass(frozen=True)
class QuantizedProduct(Product):
    """A product whose b has integers of 8 bits, from which the argument ``zero_point`` is
    subtracted, and maybe an operand ``scale`` with one a block of b's columns. ``expand``: the same
    by the specification's operators, as `Decompose` has it."""

    expand: Callable[..., Any] | None = None


@dataclass(frozen=True)
class IntegerProduct:
    """A product of integers of 8 bits, summed up exactly (`ops/quantized.py`). ``expand``: the same
    by the specification's operators, as `Decompose` has it."""

    expand: Callable[..., Any]
    family: ClassVar[str] = "integer_product"


@dataclass(frozen=True)
class Attention:
    """softmax(query · keyᵀ) · value with what `ops/attention.py` says. ``expand``: the same by the
    specification's operators, as `Decompose` has it, for devices whose limits forbid the kernel."""

    expand: Callable[..., Any]
    family: ClassVar[str] = "attention"


@dataclass(frozen=True)
class Convolution:
    """A convolution of two spatial dimensions; ``transposed`` as conv_transpose2d."""

    transposed: bool = False
    family: ClassVar[str] = "conv"


@dataclass(frozen=True)
class QuantizedConvolution(Convolution):
    """A convolution whose filter has integers of 8 bits, as `QuantizedProduct` has it."""

    expand: Callable[..., Any] | None = None


@dataclass(frozen=True)
class Reduce:
    """Elements brought together along ``axes``: what is accumulated ("sum", "l1", "square",
    "product", "log_sum_exp", "order" for extremes, "arg" for their positions) and what is done to
    the result ("mean", "log", "sqrt", "reversed" for the smallest). ``axes`` names the argument.
    """

    accumulate: str
    finish: str = ""
    axes: str = "axes"
    family: ClassVar[str] = "reduce"


@dataclass(frozen=True)
class Pool:
    """Windows of two spatial dimensions brought together: "average", "l2" or "max"."""

    kind: str
    family: ClassVar[str] = "pool"


@dataclass(frozen=True)
class Scan:
    """Running sums along ``axis``."""

    family: ClassVar[str] = "scan"


@dataclass(frozen=True)
class Softmax:
    """Exponentials along ``axis`` divided by their sum."""

    family: ClassVar[str] = "softmax"


@dataclass(frozen=True)
class Normalize:
    """Rows brought to mean 0 and variance 1, times ``scale``, plus ``bias``. ``axes(shape,
    arguments)`` gives the dimensions of a row, in the order of the affine operands' dimensions;
    ``channel(shape, arguments)`` instead the dimension that scale and bias belong to. Not
    ``centred``: the mean stays, and the mean of the squares is brought to 1."""

    axes: Callable[[tuple[int, ...], Mapping[str, Any]], tuple[int, ...]]
    channel: Callable[[tuple[int, ...], Mapping[str, Any]], int] | None = None
    centred: bool = True
    family: ClassVar[str] = "norm"


@dataclass(frozen=True)
class BatchNormalize:
    """Mean and variance are operands, one a channel of dimension ``axis``."""

    family: ClassVar[str] = "batch_norm"


@dataclass(frozen=True)
class Resample:
    """Two dimensions resampled (arguments of `resample2d`)."""

    family: ClassVar[str] = "resample"


@dataclass(frozen=True)
class Gather:
    """Elements read at positions from ``indices``: along an "axis", one index per output
    ("elements"), or coordinates ("nd")."""

    form: str
    family: ClassVar[str] = "gather"


@dataclass(frozen=True)
class Scatter:
    """Updates written at positions from ``indices``: "elements" or "nd" as in `Gather`."""

    form: str
    family: ClassVar[str] = "scatter"


#: Lowerings that a kernel family computes; ``family`` is its name.
Kernel = (
    Elementwise | Move | Join | Pad | Triangular | Product | Convolution | Reduce | Pool | Scan
    | Softmax | Normalize | BatchNormalize | Resample | Gather | Scatter | Attention
    | IntegerProduct
)
Lowering = Kernel | View | Decompose
