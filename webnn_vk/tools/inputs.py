"""``--input``: the inputs of a model: arrays in files, images, numbers or random numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from webnn_vk.compiler.types.data_types import MLOperandDescriptor
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import sanitize

from . import ToolError

IMAGES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
RANDOM = "random"


@dataclass(frozen=True)
class Given:
    """One ``--input``: an array, an image or (where both are None) random numbers, for the input
    ``name``. None: the next input without one."""

    name: str | None
    array: np.ndarray | None = None
    image: Path | None = None


@dataclass(frozen=True)
class ImageScale:
    """How pixels between 0 and 1 are normalised: ``mean`` is subtracted, then they are divided by
    ``std``. Both are one number, or one for each channel."""

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)


def read_inputs(texts: Sequence[str]) -> list[Given]:
    """Parse ``--input``: [NAME=]random, numbers, FILE.npy, FILE.npz (all of its arrays, by name) or
    an image. ``ToolError`` for unreadable inputs."""
    given: list[Given] = []
    for text in texts:
        name, what = None, text
        if "=" in text and not Path(text).is_file():
            name, _, what = text.partition("=")
        suffix = Path(what).suffix.lower()
        if what == RANDOM:
            given.append(Given(name))
        elif suffix in IMAGES:
            if not Path(what).is_file():
                raise ToolError(f"cannot read the input: no such file: {what}")
            given.append(Given(name, image=Path(what)))
        elif suffix in (".npy", ".npz"):
            arrays = _read_arrays(what)
            if name is not None and len(arrays) != 1:
                raise ToolError(f"{what} has {len(arrays)} arrays; one is needed for {name!r}")
            given += [Given(n if name is None else name, a) for n, a in arrays.items()]
        else:
            given.append(Given(name, _numbers(what)))
    return given


def _read_arrays(path: str) -> dict[str | None, np.ndarray]:
    """The arrays of a .npz file by name, or the one of a .npy file, which has no name."""
    arrays: dict[str | None, np.ndarray]
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            arrays = {None: found}
        else:
            with found:
                arrays = {name: found[name] for name in found.files}
    except OSError as error:
        raise ToolError(f"cannot read the input: {error.strerror or error}: {path}") from None
    except Exception as error:  # zipfile and the arrays' headers raise anything for broken files
        raise ToolError(f"cannot read the input {path}: {error}") from None
    for array in arrays.values():
        if array.dtype.kind not in "biuf":
            raise ToolError(f"{path} holds {array.dtype}: real numbers are needed")
    return arrays


def _numbers(text: str) -> np.ndarray:
    try:
        numbers = [float(word) if _has_point(word) else int(word) for word in text.split(",")]
    except ValueError:
        raise ToolError(
            f"--input {text!r} is not one of: random, a number or several with commas, FILE.npy, "
            f"FILE.npz, an image ({', '.join(IMAGES[:3])} …)"
        ) from None
    return np.array(numbers[0] if len(numbers) == 1 else numbers)


def _has_point(word: str) -> bool:
    return any(c in word.lower() for c in ".enf")


def named(given: Sequence[Given], names: Sequence[str]) -> dict[str, Given]:
    """The given inputs by the names of the model's inputs. Inputs without a name go to the
    remaining inputs in order. ``ToolError`` where the names or the number don't match."""
    found: dict[str, Given] = {}
    for one in given:
        if one.name is not None:
            if one.name not in names:
                there = ", ".join(map(sanitize, names)) or "none"
                raise ToolError(f"there is no input {sanitize(one.name)!r}; inputs: {there}")
            if one.name in found:
                raise ToolError(f"--input {sanitize(one.name)!r} is given twice")
            found[one.name] = one
    left = [name for name in names if name not in found]
    for one in given:
        if one.name is None:
            if not left:
                raise ToolError(f"--input: the model has {len(names)} inputs, more are given")
            found[left.pop(0)] = one
    return found


def feeds(
    inputs: Mapping[str, MLOperandDescriptor], given: Mapping[str, Given], seed: int,
    scale: ImageScale,
) -> dict[str, np.ndarray]:
    """An array for each input of a graph. Inputs that are not given are random: floats between 0
    and 1, integers 0 or 1. ``ToolError`` for arrays that don't fit."""
    generator = np.random.default_rng(seed)
    return {
        name: _feed(name, descriptor, given.get(name), generator, scale)
        for name, descriptor in inputs.items()
    }


def _feed(
    name: str, descriptor: MLOperandDescriptor, given: Given | None,
    generator: np.random.Generator, scale: ImageScale,
) -> np.ndarray:
    kind, shape = descriptor.numpy_dtype, tuple(descriptor.shape)
    if given is not None and given.array is not None:
        array = given.array
        if array.size == 1 and array.shape != shape:
            array = np.full(shape, array.reshape(()))
        if array.shape != shape and array.size == int(np.prod(shape)) and array.ndim == 1:
            array = array.reshape(shape)
        if array.shape != shape:
            raise ToolError(
                f"input {sanitize(name)!r}: the array is {list(array.shape)}, the model takes "
                f"{list(shape)}"
            )
        return np.ascontiguousarray(array.astype(kind))
    if given is not None and given.image is not None:
        return image_array(given.image, name, shape, kind, scale)
    if np.issubdtype(kind, np.floating):
        return generator.random(shape, np.float32).astype(kind)
    return generator.integers(0, 2, shape).astype(kind)


def image_array(
    path: Path, name: str, shape: tuple[int, ...], kind: Any, scale: ImageScale
) -> np.ndarray:
    """An image as an input [1, C, H, W] or [1, H, W, C], or without the batch, of 1 or 3 channels:
    resized, between 0 and 1 and then scaled for floats, between 0 and 255 for integers."""
    from webnn_vk.examples.images import ImageError, open_image

    try:
        image = open_image(path)
    except ImageError as error:
        raise ToolError(str(error)) from None
    plane = shape[1:] if len(shape) == 4 and shape[0] == 1 else shape
    first = len(plane) == 3 and plane[0] in (1, 3)
    if not first and not (len(plane) == 3 and plane[2] in (1, 3)):
        raise ToolError(
            f"input {sanitize(name)!r} is {list(shape)}: images go into [1, C, H, W] or "
            "[1, H, W, C] of 1 or 3 channels"
        )
    channels, height, width = plane if first else (plane[2], plane[0], plane[1])
    image = image.convert("L" if channels == 1 else "RGB").resize((width, height))
    pixels = np.asarray(image).reshape(height, width, channels)
    if np.issubdtype(kind, np.floating):
        for what, numbers in (("mean", scale.mean), ("std", scale.std)):
            if len(numbers) not in (1, channels):
                raise ToolError(f"--{what}: {len(numbers)} numbers for {channels} channels")
        pixels = (pixels / 255 - np.array(scale.mean)) / np.array(scale.std)
    if first:
        pixels = pixels.transpose(2, 0, 1)
    return np.ascontiguousarray(pixels.reshape(shape).astype(kind))
