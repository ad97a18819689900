"""`python -m webnn_vk.codegen inspect`: a module compiled for a chip."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from . import spirv
from .isa import Module
from .spec import PUSH_CONSTANT_BYTES, KernelSpec, SpecError


def given_constants(texts: Sequence[str]) -> dict[str, float]:
    """Constants from texts of the form NAME=NUMBER. SpecError for other texts."""
    values: dict[str, float] = {}
    for text in texts:
        name, _, number = text.partition("=")
        try:
            values[name] = int(number, 0) if not set(number) & set(".einf") else float(number)
        except ValueError:
            raise SpecError(f"--set {text!r}: NAME=NUMBER is accepted") from None
    return values


def module_of_spec(
    spec: KernelSpec, code: bytes, constants: Mapping[str, float], name: str
) -> Module:
    """The pipeline of a template's module with the given specialisation constants, by name, and
    defaults for the others. SpecError for unknown names."""
    ids, values = spec.pack_constants(constants)
    pairs = tuple((number, values[4 * n : 4 * n + 4]) for n, number in enumerate(ids))
    return Module.of_spec(spec, code, pairs, name)


def module_of_file(code: bytes, constants: Mapping[str, float], name: str) -> Module:
    """The pipeline of a module that binds storage buffers in set 0, with specialisation constants
    by id: integers, or floats if written with a point. SpecError for unknown ids and other sets."""
    about = spirv.info(code)
    if any(number for number, _ in about.bindings):
        raise SpecError(f"{name}: it binds in the sets {sorted({s for s, _ in about.bindings})}; "
                        "only set 0 is accepted")
    known = {str(number) for number in about.constant_ids}
    if unknown := sorted(set(constants) - known):
        raise SpecError(f"--set {unknown[0]}: the module has the specialisation constants "
                        f"{', '.join(sorted(known)) or 'none'}, by id")
    values = tuple(
        (int(number), struct.pack("<f" if isinstance(value, float) else "<I", value))
        for number, value in constants.items()
    )
    bindings = max((binding for _, binding in about.bindings), default=-1) + 1
    return Module(name, code, bindings, PUSH_CONSTANT_BYTES, values)
