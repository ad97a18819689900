"""Names, strings, numbers and constants in a graph's text form.

The elements of a constant follow its type in one of these forms:

    0.5                      every element
    [1.0, 2.0, -3.5]         the elements in row-major order (up to 16 are printed so)
    data(5b0c2d83f1a9e604)   elements stored elsewhere, by a digest of type, shape and contents
    tensor(0)                a constant tensor, whose contents are unknown
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import Any

import numpy as np

from webnn_vk.support.errors import sanitize

from ..types.data_types import LOW_PRECISION, MLOperandDescriptor

# Constants with more elements are printed as a digest, unless all elements are equal.
MAX_INLINE_ELEMENTS = 16

PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
PLAIN_LABEL = re.compile(r"[^\[\]\"\\]+")
# Names that the printer gives to constants; an input with such a name is quoted.
_CONSTANT_NAME = re.compile(r"c[0-9]+")


def name_text(name: str) -> str:
    """A name unquoted if it is plain, or else quoted, with ASCII characters only."""
    return name if PLAIN_NAME.fullmatch(name) else json.dumps(name)


def input_text(name: str) -> str:
    """A reference to an input: quoted if it could be mistaken for another value."""
    plain = PLAIN_NAME.fullmatch(name) and not _CONSTANT_NAME.fullmatch(name)
    return f"%{name}" if plain else f"%{json.dumps(name)}"


def label_text(label: str) -> str:
    """A node's label in brackets."""
    plain = PLAIN_LABEL.fullmatch(label) and label == sanitize(label).strip()
    return f"[{label if plain else json.dumps(label)}]"


def argument_text(value: Any) -> str:
    """An operator's argument in normal form: a number, a string, None, or a tuple of these."""
    if isinstance(value, (tuple, list)):
        inner = ", ".join(map(argument_text, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, str):
        return json.dumps(value)
    return repr(value)


def number_text(number: np.generic) -> str:
    """One element, exactly: NaNs other than the usual one with their bits."""
    if number.dtype.kind != "f":
        return str(int(number))
    if np.isnan(number):
        usual = number.dtype.type(math.nan).tobytes()
        if number.tobytes() == usual:
            return "nan"
        return f"nan(0x{int.from_bytes(number.tobytes(), 'little'):x})"
    # The shortest decimal that reads back as this number.
    text = str(number)
    exact = number.dtype.type(float(text)) == number
    return text if exact else repr(float(number))


def constant_text(descriptor: MLOperandDescriptor, data: np.ndarray) -> str:
    """The elements of a constant, in a form of the module's docstring."""
    if descriptor.data_type in LOW_PRECISION:  # experimental: numbers have no text
        return f"data({digest(descriptor, data)})"
    flat = np.ascontiguousarray(data).reshape(-1)
    bits = flat.view(f"u{flat.itemsize}")
    if flat.size and (bits == bits[0]).all():
        return number_text(flat[0])
    if flat.size <= MAX_INLINE_ELEMENTS:
        return f"[{', '.join(map(number_text, flat))}]"
    return f"data({digest(descriptor, data)})"


def digest(descriptor: MLOperandDescriptor, data: np.ndarray) -> str:
    """16 hexadecimal digits of a hash of a constant's type, shape and elements."""
    hashed = hashlib.sha256(str(descriptor).encode())
    hashed.update(np.ascontiguousarray(data).reshape(-1).view(np.uint8))
    return hashed.hexdigest()[:16]
