"""MODEL on the command line: an ONNX file, a ``.webnn`` file or ``cache:KEY``, a saved graph."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import DOMException, sanitize

from . import ToolError, need
from .inputs import Given, named

if TYPE_CHECKING:
    from webnn_vk.api.context import MLContext
    from webnn_vk.api.ml_graph import MLGraph

SAVED = "cache:"
#: Lengths assumed for unknown dimensions: the batch, sides of images, and others (time, tokens),
#: where every step may cost as much as the one before.
BATCH, IMAGE, OTHERS = 1, 224, 8
#: Numbers of channels of images.
_CHANNELS = (1, 3)
_IS_BATCH = re.compile(r"batch|^[nb]$", re.IGNORECASE)
_IS_SEQUENCE = re.compile(r"seq|time|token|past|len|step|frame", re.IGNORECASE)

NOTHING: Mapping[str, Any] = MappingProxyType({})

Shapes = Mapping[str, tuple[int, ...]]
Values = Mapping[str, np.ndarray]


class UnsupportedModel(ToolError):
    """A model that WebNN can't express. ``problems``: "node", "operator" and "reason" of each."""

    def __init__(self, message: str, problems: list[dict[str, str]]) -> None:
        super().__init__(message)
        self.problems = problems


@dataclass(frozen=True)
class Port:
    """An input of a model. ``type``: NumPy's name; ``shape``: with a name or None for a dimension
    that is not fixed; None if unknown."""

    name: str
    type: str
    shape: tuple[int | str | None, ...] | None


@dataclass
class OpenedModel:
    """A model as a graph on a context. ``ports``: all of its inputs; ``bound``: the values of
    inputs that were needed to build the graph, which doesn't have these inputs; ``assumed``: the
    assumptions about shapes in words, or ""."""

    title: str
    kind: str
    graph: MLGraph
    ports: dict[str, Port]
    bound: dict[str, np.ndarray] = field(default_factory=dict)
    assumed: str = ""


def kind_of(model: str) -> str:
    """The kind of a model: "onnx", "webnn" or "cache". ``ToolError`` for anything else, and for a
    missing file."""
    if model.startswith(SAVED):
        if model == SAVED:
            raise ToolError(f"{SAVED}KEY names a saved graph: the key is missing")
        return "cache"
    path = Path(model)
    kind = {".onnx": "onnx", ".webnn": "webnn"}.get(path.suffix.lower())
    if kind is None:
        raise ToolError(f"{model!r}: a model is a .onnx or .webnn file, or {SAVED}KEY")
    if path.is_dir():
        raise ToolError(f"cannot read the model: it is a folder: {model}")
    if not path.is_file():
        raise ToolError(f"cannot read the model: no such file: {model}")
    return kind


def parse_shapes(given: list[str]) -> dict[str, tuple[int, ...]]:
    """Parse ``--shape`` NAME=1,3,48,192. ValueError for anything else."""
    shapes = {}
    for text in given:
        name, equals, numbers = text.rpartition("=")
        try:
            shape = tuple(int(n) for n in numbers.split(",")) if numbers else ()
        except ValueError:
            shape = (0,)
        if not equals or not name or any(length < 1 for length in shape):
            raise ValueError(f"{text!r} is not NAME=1,3,48,192")
        shapes[name] = shape
    return shapes


def open_model(
    model: str, context: MLContext, shapes: Shapes = NOTHING,
    given: Sequence[Given] = (), outputs: Sequence[str] | None = None,
) -> OpenedModel:
    """Build or load a model. The arrays among the ``given`` inputs determine shapes, and values
    that an ONNX model needs at build time; ``outputs``: the wanted ones. ``ToolError`` with the
    reason where that fails."""
    kind = kind_of(model)
    try:
        if kind == "onnx":
            return _open_onnx(model, context, shapes, given, outputs)
        if kind == "webnn":
            return _open_webnn(model, context, shapes, given)
        return _open_saved(model, context, shapes, given)
    except OSError as error:
        raise ToolError(f"cannot read the model: {error.strerror or error}: {model}") from None
    except (ValueError, TypeError, DOMException) as error:
        raise ToolError(f"{model}: {error}") from None


def need_packages(model: str, *features: str) -> None:
    """Raises ``ToolError`` where packages for the model or for features of `packages` are missing.
    It names all of them."""
    by_kind = ("onnx",) if kind_of(model) == "onnx" else ()
    need("this needs", *by_kind, *features)


def onnx_package() -> Any:
    """The module ``webnn_vk.onnx``. ``ToolError`` where packages that it needs are missing."""
    need("this needs", "onnx")
    from webnn_vk import onnx

    return onnx


def is_image(shape: tuple[int | str | None, ...]) -> bool:
    """Whether the unknown dimensions of an input are the height and the width of an image. They
    must be adjacent. With three dimensions there must be one or three channels; with four, any
    number of channels, and with one or three channels one of the two may be known."""
    plane = shape[1:] if len(shape) == 4 else shape
    if len(plane) != 3 or any(
        isinstance(d, str) and _IS_SEQUENCE.search(d) for d in plane
    ):
        return False
    for channels, plane_sizes in ((plane[0], plane[1:]), (plane[2], plane[:2])):
        unknown = sum(not isinstance(length, int) for length in plane_sizes)
        if channels in _CHANNELS and unknown >= (1 if len(shape) == 4 else 2):
            return True
        if len(shape) == 4 and unknown == 2:
            return True
    return False


def default_shape(
    port: Port, lengths: dict[str, int], most: Mapping[str, int] = NOTHING
) -> tuple[int, ...]:
    """A shape for a port. The ``lengths`` of named dimensions are used, and extended by new ones.
    ``most``: the largest lengths of named dimensions."""
    declared = port.shape or ()
    others = IMAGE if is_image(declared) else OTHERS
    batches = [n for n, d in enumerate(declared) if isinstance(d, str) and _IS_BATCH.search(d)]
    shape = []
    for place, dimension in enumerate(declared):
        if not isinstance(dimension, int):
            # The first dimension is the batch, unless another one has this name.
            length = BATCH if place in (batches or [0]) else others
            if dimension is not None:
                length = lengths.setdefault(dimension, min(length, most.get(dimension, length)))
            dimension = length
        shape.append(dimension)
    return tuple(shape)


def guessed(
    ports: Mapping[str, Port], shapes: Shapes, given: Shapes, images: bool = False
) -> str:
    """The assumptions about dimensions that were not given, in words, or "". ``images``: include
    the documented ones, for images and batches."""
    told = []
    for name, port in ports.items():
        declared = port.shape or ()
        places = [n for n, d in enumerate(declared) if not isinstance(d, int)]
        if name in given or name not in shapes or not places:
            continue
        if images or any(shapes[name][n] != BATCH for n in places) and not is_image(declared):
            told.append(f"{sanitize(name)} {shown_shape(declared)} as "
                        f"--shape {sanitize(name)}={','.join(map(str, shapes[name]))}")
    return f"unknown dimensions are taken: {'; '.join(told)}" if told else ""


def _values_of(ports: Mapping[str, Port], given: Sequence[Given]) -> dict[str, np.ndarray]:
    """The given arrays by the names of the inputs that take them."""
    return {n: g.array for n, g in named(given, list(ports)).items() if g.array is not None}


def _shapes_of(ports: Mapping[str, Port], values: Values) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays, except for single numbers, which fill an input, and for flat lists
    of the elements of an input of another rank."""
    def ranked(name: str, array: np.ndarray) -> bool:
        declared = ports[name].shape if name in ports else None
        return declared is None or len(declared) == array.ndim

    return {n: a.shape for n, a in values.items() if a.ndim > 1 or ranked(n, a)}


def _known_lengths(ports: Mapping[str, Port], given: Shapes) -> dict[str, int]:
    """The lengths of named dimensions in the given shapes. ValueError for a shape that does not
    match the input, or an unknown input."""
    lengths: dict[str, int] = {}
    for name, shape in given.items():
        if name not in ports:
            there = ", ".join(sanitize(n) for n in ports) or "none"
            raise ValueError(f"there is no input {sanitize(name)!r}; inputs: {there}")
        declared = ports[name].shape
        if declared is None:
            continue
        fits = len(declared) == len(shape) and all(
            not isinstance(d, int) or d == n for d, n in zip(declared, shape, strict=True)
        )
        if not fits:
            raise ValueError(
                f"input {sanitize(name)!r} has the shape {shown_shape(declared)}, "
                f"not {shown_shape(shape)}"
            )
        lengths |= {
            d: n for d, n in zip(declared, shape, strict=True) if isinstance(d, str)
        }
    return lengths


def shown_shape(shape: tuple[int | str | None, ...] | None) -> str:
    """A shape as text."""
    if shape is None:
        return "unknown"
    return f"[{', '.join('?' if d is None else sanitize(str(d)) for d in shape)}]"


def _also(guess: str) -> str:
    return f"; {guess}" * bool(guess)


def _open_onnx(
    model: str, context: MLContext, shapes: Shapes, inputs: Sequence[Given],
    outputs: Sequence[str] | None,
) -> OpenedModel:
    onnx = onnx_package()
    from webnn_vk.onnx.reading import read_model

    read = read_model(model)
    ports = {n: Port(n, p.type, p.shape) for n, p in read.inputs.items()}
    values = _values_of(ports, inputs)
    given = {**_shapes_of(ports, values), **shapes}
    lengths = _known_lengths(ports, given)
    known: dict[str, Any] = {
        name: given[name] if name in given else default_shape(port, lengths)
        for name, port in ports.items()
        if port.shape is not None or name in given
    }
    guess = guessed(ports, known, given, images=True)
    bound: dict[str, np.ndarray] = {}
    while True:
        try:
            graph = onnx.load(read, context, {**known, **bound}, outputs=outputs).result()
            return OpenedModel(
                Path(model).name, "onnx", graph, ports, bound, guessed(ports, known, given)
            )
        except onnx.UnsupportedModelError as error:
            needed = error.values_needed - bound.keys()
            if not needed:
                hint = ""
                if any(p.operator == "output" for p in error.problems):
                    hint = "\n  (here: --outputs NAME,NAME)"
                raise UnsupportedModel(f"{error}{hint}{_also(guess)}", [
                    {"node": p.node, "operator": p.operator, "reason": p.reason}
                    for p in error.problems
                ]) from None
            for name in sorted(needed):
                if name not in values:
                    raise ToolError(
                        f"{model}: the value of input {sanitize(name)!r} determines shapes or "
                        f"branches: give it as --input {sanitize(name)}=VALUE or FILE.npy"
                    ) from None
                value = values[name].astype(ports[name].type)
                bound[name] = value if value.ndim else np.full(known.get(name, ()), value)
        except (ValueError, TypeError, DOMException) as error:
            raise ToolError(f"{model}: {error}{_also(guess)}") from None


def _open_webnn(
    model: str, context: MLContext, shapes: Shapes, inputs: Sequence[Given]
) -> OpenedModel:
    from webnn_vk import webnn_file
    from webnn_vk.webnn_file.text import Dynamic, parse

    document = parse(Path(model).read_bytes().decode("utf-8", "replace"))
    ports, most = {}, {}
    for declared in document.inputs:
        most |= {d.name: d.largest for d in declared.shape if isinstance(d, Dynamic)}
        shape = tuple(d.name if isinstance(d, Dynamic) else d for d in declared.shape)
        name = document.titles.get(("input", declared.name), declared.name)
        ports[name] = Port(name, declared.data_type, shape)
    given = {**_shapes_of(ports, _values_of(ports, inputs)), **shapes}
    lengths = _known_lengths(ports, given)
    made = {name: default_shape(port, lengths, most) for name, port in ports.items()}
    graph = webnn_file.load(model, context, dimensions=lengths).result()
    return OpenedModel(Path(model).name, "webnn", graph, ports,
                       assumed=guessed(ports, made, given))


def _open_saved(
    model: str, context: MLContext, shapes: Shapes, inputs: Sequence[Given]
) -> OpenedModel:
    key = model.removeprefix(SAVED)
    graph = context.load_graph(key).result()
    ports = {n: Port(n, d.data_type, d.shape) for n, d in graph.inputs.items()}
    values = _values_of(ports, [given for given in inputs if given.name is not None])
    _known_lengths(ports, {**_shapes_of(ports, values), **shapes})
    return OpenedModel(model, "cache", graph, ports)
