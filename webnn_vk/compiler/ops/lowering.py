"""How an operator is computed on a device, as plain data.

An operator is an element-wise expression, a movement of elements (another access of the same
memory), a view, a composition of other operators, or computed by a kernel family. In the last case
the lowering has the parameters of the family: ``Reduce("sum", finish="mean")``. Kernels and passes
read lowerings; no kernel depends on an operator's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from webnn_vk.support.dataclass import dataclass

from ..types.access import Access


@dataclass(frozen=True)
class Elementwise:
    """A GLSL expression for one output element.

    ``expression`` names operands and numeric arguments in braces: ``"w_add({a}, {b})"``. Operands
    are values of their arithmetic type; numbers are passed as parameters of the first operand's
    arithmetic type. ``variants`` replaces the expression if it depends on arguments or data types:
    called with (descriptors by operand name, output descriptor, arguments), it returns an
    expression. Operands broadcast to the output. ``commutes``: exchanging the two operands does
    not change any bit of the result. ``limits``: the expression is ``w_min(w_max(x, low), high)``;
    called with the arguments, it returns low and high. ``converts``: the result is the operand in
    another data type. ``decompose``, as in `Decompose`, computes
    the same by operators of the specification, for a compiler operator.
    """

    expression: str = ""
    variants: Callable[[Mapping[str, Any], Any, Mapping[str, Any]], str] | None = None
    # Operands that are blockwise broadcast (each dimension divides the output's).
    blockwise: tuple[str, ...] = ()
    flops: int = 1
    commutes: bool = False
    limits: Callable[[Mapping[str, Any]], tuple[float, float]] | None = None
    converts: bool = False
    decompose: Callable[..., Any] | None = None
    family: ClassVar[str] = "elementwise"

    @property
    def adds(self) -> bool:
        """Whether it is the sum of two operands."""
        return self.expression == "w_add({a}, {b})"

    @property
    def multiplies(self) -> bool:
        """Whether it is the product of two operands."""
        return self.expression == "w_mul({a}, {b})"


@dataclass(frozen=True)
class View:
    """The output has the input's elements in the same order: no work, a shared buffer."""


@dataclass(frozen=True)
class Decompose:
    """Expressed by other operators: ``decompose(emit, operands, arguments, outputs)`` returns the
    output values; ``emit`` offers every operator as a method."""

    decompose: Callable[..., Any]


@dataclass(frozen=True)
class Move:
    """The outputs are other accesses of the input. ``views(input, outputs, **arguments)`` gets the
    input's access and the outputs' shapes and returns an access for each output. An access may
    split dimensions of the output, in the same order."""

    views: Callable[..., Sequence[Access]]
    family: ClassVar[str] = "copy"


@dataclass(frozen=True)
class Join:
    """The operands ``inputs`` are parts of the output. ``places(output, inputs, **arguments)`` gets
    the output's access and the inputs' shapes and returns the access of each part."""

    places: Callable[..., Sequence[Access]]
    family: ClassVar[str] = "copy"


@dataclass(frozen=True)
class PlainKernel:
    """Computed by the kernel family of this name, from the operator's operands and arguments."""

    family: str


@dataclass(frozen=True)
class Product:
    """alpha · a · b + beta · c over the last two dimensions; the others broadcast. ``transposed``:
    operand → the argument that tells whether its last two dimensions are exchanged."""

    transposed: tuple[tuple[str, str], ...] = ()
    family: ClassVar[str] = "matmul"


@dataclass(frozen=True)
class QuantizedProduct(Product):
    """A product whose b has 8-bit integers, from which the argument ``zero_point`` is subtracted.
    ``decompose``, as in `Decompose`, computes the same by operators of the specification."""

    decompose: Callable[..., Any] | None = None


@dataclass(frozen=True)
class BlockProduct:
    """A product whose b has integers of a few bits in words, with a scale for each block
    (`ops/block_product.py`). ``decompose``, as in `Decompose`, computes the same by operators of
    the specification."""

    decompose: Callable[..., Any]
    family: ClassVar[str] = "block_product"


@dataclass(frozen=True)
class IntegerProduct:
    """A product of 8-bit integers with exact sums (`ops/quantized.py`). ``decompose``, as in
    `Decompose`, computes the same by operators of the specification."""

    decompose: Callable[..., Any]
    family: ClassVar[str] = "integer_product"


@dataclass(frozen=True)
class Attention:
    """softmax(query · keyᵀ) · value with the options of `ops/attention.py`. ``decompose``, as in
    `Decompose`, computes the same by operators of the specification, for devices whose limits
    forbid the kernel."""

    decompose: Callable[..., Any]
    family: ClassVar[str] = "attention"


@dataclass(frozen=True)
class Recurrence:
    """The recurrent part of an "lstm" or a "gru", all steps (`ops/recurrence.py`). ``decompose``,
    as in `Decompose`, makes a loop of the steps, for devices whose limits forbid the kernel."""

    cell: str
    decompose: Callable[..., Any]
    family: ClassVar[str] = "recurrence"


@dataclass(frozen=True)
class Convolution:
    """A convolution of two spatial dimensions; ``transposed`` as conv_transpose2d."""

    transposed: bool = False
    family: ClassVar[str] = "conv"


@dataclass(frozen=True)
class QuantizedConvolution(Convolution):
    """A convolution whose filter has 8-bit integers; see `QuantizedProduct`."""

    decompose: Callable[..., Any] | None = None


@dataclass(frozen=True)
class Reduce:
    """Elements reduced along ``axes``: the accumulation ("sum", "l1", "square", "product",
    "log_sum_exp", "order" for extremes, "arg" for their positions) and the function of the result
    ("mean", "log", "sqrt", "reversed" for the smallest). ``axes`` names the argument.
    """

    accumulate: str
    finish: str = ""
    axes: str = "axes"
    family: ClassVar[str] = "reduce"


@dataclass(frozen=True)
class Pool:
    """Windows of two spatial dimensions reduced: "average", "l2" or "max"."""

    kind: str
    family: ClassVar[str] = "pool"


@dataclass(frozen=True)
class Normalize:
    """Rows normalised to mean 0 and variance 1, times ``scale``, plus ``bias``. ``axes(shape,
    arguments)`` returns the dimensions of a row, in the order of the dimensions of scale and bias;
    ``channel(shape, arguments)``, if given, the one dimension of scale and bias. If not
    ``centred``, the mean is kept and the mean of the squares is normalised to 1. ``decompose``, as
    in `Decompose`, computes the same by operators of the specification."""

    axes: Callable[[tuple[int, ...], Mapping[str, Any]], tuple[int, ...]]
    channel: Callable[[tuple[int, ...], Mapping[str, Any]], int] | None = None
    centred: bool = True
    decompose: Callable[..., Any] | None = None
    family: ClassVar[str] = "norm"


@dataclass(frozen=True)
class Gather:
    """Elements read at positions from ``indices``: slices along an "axis", one index for each
    output ("elements"), or coordinates ("nd")."""

    form: str
    family: ClassVar[str] = "gather"


@dataclass(frozen=True)
class Scatter:
    """Updates written at positions from ``indices``: "elements" or "nd" as in `Gather`."""

    form: str
    family: ClassVar[str] = "scatter"


#: Lowerings computed by a kernel family; ``family`` is its name.
Kernel = (
    Elementwise | Move | Join | PlainKernel | Product | Convolution | Reduce | Pool | Normalize
    | Gather | Scatter | Attention | BlockProduct | IntegerProduct | Recurrence
)
@dataclass(frozen=True)
class Repeat:
    """A loop of steps (`ops/repeat.py`). ``decompose``, as in `Decompose`, unrolls it, where one of
    its operators runs on the CPU."""

    decompose: Callable[..., Any]


Lowering = Kernel | View | Decompose | Repeat
