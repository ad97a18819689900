"""The description of a compute kernel as plain data: the input of the generator.

A `KernelSpec` names a template and determines its structure: buffers with data types, parameters,
specialisation constants and options. Numbers that change between dispatches (shapes, strides) are
parameters, numbers that a driver may fold (tile sizes, the workgroup size) are specialisation
constants. Neither changes the SPIR-V.
"""

from __future__ import annotations

import json
import math
import operator
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from webnn_vk.support.cached_property import cached_property
from webnn_vk.support.dataclass import dataclass

#: The size of push constants in bytes that every Vulkan device supports.
PUSH_CONSTANT_BYTES = 128

#: Data type -> bytes per element. uint16 and bits16 are not operand types, but the bits of 16-bit
#: elements.
ELEMENT_BYTES = {
    "float32": 4, "float16": 2, "int32": 4, "uint32": 4,
    "int64": 8, "uint64": 8, "int8": 1, "uint8": 1, "uint16": 2, "bits16": 2,
}

#: Device features that can change a shader (names of `webnn_vk.driver.device_profile.FEATURES`).
FEATURES = frozenset({
    "float16", "float16_arithmetic", "int8", "int8_arithmetic", "int16", "int64", "float64",
    "subgroup_basic", "subgroup_vote", "subgroup_arithmetic", "subgroup_ballot",
    "subgroup_shuffle", "subgroup_extended_types", "cooperative_matrix", "vulkan_memory_model",
    "integer_dot_product", "integer_dot_product_accelerated", "buffer_device_address",
    "nan_preserve_f16", "nan_preserve_f32", "denorm_preserve_f16", "denorm_preserve_f32",
    "denorm_flush_f32", "rounding_rte_f16", "rounding_rte_f32",
})

_SCALARS = ("uint", "int", "float")
# Data types of texels, and the last letters of their formats.
_TEXELS = {"float32": "f", "int32": "i", "uint32": "ui"}
_IDENTIFIER = re.compile(r"[A-Za-z](?:_?[A-Za-z0-9])*\Z")
_TEMPLATE = re.compile(r"[a-z0-9_]+(?:/[a-z0-9_]+)*\.comp\.j2\Z")
# Names that parameters and constants must not have: GLSL's words and names of the prelude.
_RESERVED = frozenset(
    "P P_block P_values "
    "LX LY LZ I64 U64 main float int uint bool double void vec2 vec3 vec4 ivec2 ivec3 ivec4 "
    "uvec2 uvec3 uvec4 bvec2 bvec3 bvec4 mat2 mat3 mat4 in out inout const uniform buffer shared "
    "attribute varying layout flat smooth centroid precise invariant coherent volatile restrict "
    "readonly writeonly if else for while do switch case default break continue return discard "
    "struct true false highp mediump lowp precision sampler image subroutine common partition "
    "active asm class union enum typedef template this resource goto inline noinline public "
    "static extern external "
    "interface long short half fixed unsigned superp input output filter sizeof cast namespace "
    "using sample patch".split()
)
# Jinja variables of every template besides its options (see render.py).
TEMPLATE_VARIABLES = frozenset(
    {"spec", "buffers", "params", "constants", "features", "int64_native", "int64_used",
     "extensions", "arithmetic_type", "loop", "self", "super", "caller", "varargs",
     "kwargs", "range", "dict", "lipsum", "cycler", "joiner", "namespace"}
)


_COMPACT = json.JSONEncoder(separators=(",", ":"))


class SpecError(ValueError):
    """A `KernelSpec`, its parameters or its constants are invalid."""


def _check_name(kind: str, name: str, *, reserved: Iterable[str] = ()) -> None:
    if not isinstance(name, str) or not _IDENTIFIER.match(name):
        raise SpecError(
            f"{kind} name {name!r}: letters, digits and single inner underscores are accepted"
        )
    if name in reserved:
        raise SpecError(f"{kind} name {name!r} is reserved")


def _check_choice(what: str, kind: str, value: Any, accepted: Iterable[Any]) -> None:
    if value not in accepted:
        raise SpecError(f"{what}: {kind} {value!r}; accepted: {', '.join(map(str, accepted))}")


def _check_distinct(kind: str, names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        double = sorted({name for name in names if names.count(name) > 1})
        raise SpecError(f"two of the {kind}s are called {', '.join(double)}")


@dataclass(frozen=True)
class Buffer:
    """A storage buffer of the kernel.

    access: "r", "w" or "rw". width 4: elements are stored as 4-component vectors, and
    `load4_<name>`/`store4_<name>` count vectors (32-bit types, float16, bits16, int8, uint8). A
    scalar store into packed words (8 and 16 bits without native storage, or width 4) takes two
    atomics.
    width 8, for float16 with access r: `read_<name>` counts 8 elements and returns them as uvec4.
    portions > 1: the tensor is bound as this many portions, in successive descriptors, of
    `PORTION_<name>` elements each (the last may be shorter). This specialisation constant is a
    multiple of 16.
    load "texel": bound as a uniform texel buffer of `texel_format`, with a texel for each element,
    or for 4 elements at width 4. For 32-bit types with access r and 1 portion. The size of the
    bound range is a multiple of a texel, and so is its offset.
    """

    name: str
    data_type: str
    access: str = "r"
    width: int = 1
    portions: int = 1
    load: str = "storage"

    def __post_init__(self) -> None:
        _check_name("buffer", self.name)
        what = f"buffer {self.name!r}"
        _check_choice(what, "data type", self.data_type, ELEMENT_BYTES)
        _check_choice(what, "access", self.access, ("r", "w", "rw"))
        _check_choice(what, "width", self.width, (1, 4, 8))
        if self.width == 8 and (self.data_type, self.access) != ("float16", "r"):
            raise SpecError(
                f"{what}: width 8 is for float16 with access r, not {self.data_type} with access "
                f"{self.access}"
            )
        if self.width == 4 and self.data_type in ("int64", "uint64", "uint16"):
            raise SpecError(f"{what}: width 4 does not exist for {self.data_type}")
        if not isinstance(self.portions, int) or not 1 <= self.portions <= 64:
            raise SpecError(f"{what}: portions {self.portions!r}; accepted: 1 to 64")
        _check_choice(what, "load", self.load, ("storage", "texel"))
        if self.load == "texel" and self.texel_format is None:
            raise SpecError(
                f"{what}: texels are {', '.join(_TEXELS)} with access r and 1 portion, not "
                f"{self.data_type} with access {self.access} and {self.portions} portions"
            )

    @property
    def texel_format(self) -> str | None:
        """The format of its texels; None for a buffer that isn't a valid texel buffer."""
        if (self.load, self.access, self.portions) != ("texel", "r", 1):
            return None
        letter = _TEXELS.get(self.data_type)
        return letter and f"{'rgba' if self.width == 4 else 'r'}32{letter}"


@dataclass(frozen=True)
class Param:
    """A number, or `count` numbers, given at each dispatch; `P.<name>` in GLSL."""

    name: str
    type: str = "uint"
    count: int = 1

    def __post_init__(self) -> None:
        _check_name("parameter", self.name, reserved=_RESERVED)
        _check_choice(f"parameter {self.name!r}", "type", self.type, _SCALARS)
        if not isinstance(self.count, int) or self.count < 1:
            raise SpecError(f"parameter {self.name!r}: count {self.count!r}; at least 1 is needed")


@dataclass(frozen=True)
class Constant:
    """A specialisation constant, given when a pipeline is created; `<name>` in GLSL."""

    name: str
    type: str = "uint"
    default: int | float = 1

    def __post_init__(self) -> None:
        _check_name("constant", self.name, reserved=_RESERVED)
        _check_choice(f"constant {self.name!r}", "type", self.type, _SCALARS)
        _scalar_bytes(f"default of constant {self.name!r}", self.type, self.default)


@dataclass(frozen=True, eq=False)
class KernelSpec:
    """The structure of a kernel. Specs with the same key are equal and render to the same text.

    options: for conditions in the template: a mapping of names to plain hashable values, or pairs.
    features: device features that the shader may use; the prelude emulates missing ones.
    """

    template: str
    buffers: tuple[Buffer, ...]
    params: tuple[Param, ...] = ()
    constants: tuple[Constant, ...] = ()
    options: tuple[tuple[str, Any], ...] | Mapping[str, Any] = ()
    features: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if isinstance(self.options, Mapping):
            object.__setattr__(self, "options", tuple(self.options.items()))
        for field in ("buffers", "params", "constants", "options"):
            object.__setattr__(self, field, tuple(getattr(self, field)))
        object.__setattr__(self, "features", frozenset(self.features))
        if not isinstance(self.template, str) or not _TEMPLATE.match(self.template):
            raise SpecError(f"template {self.template!r}: a name like 'copy.comp.j2' is needed")
        _check_distinct("buffer", [b.name for b in self.buffers])
        _check_distinct("parameter", [p.name for p in self.params])
        _check_distinct("constant", self.constant_ids_names)
        for option in self.options:
            if not isinstance(option, tuple) or len(option) != 2:
                raise SpecError(f"option {option!r}: a (name, value) pair is needed")
            _check_name("option", option[0], reserved=TEMPLATE_VARIABLES)
            _check_plain(f"option {option[0]!r}", option[1])
        _check_distinct("option", [name for name, _ in self.options])
        unknown = sorted(self.features - FEATURES)
        if unknown:
            raise SpecError(f"features {', '.join(unknown)}; known: {', '.join(sorted(FEATURES))}")
        if {"denorm_flush_f32", "denorm_preserve_f32"} <= self.features:
            raise SpecError("denorm_flush_f32 and denorm_preserve_f32 exclude each other")

    # -- parameters

    @cached_property
    def param_bytes(self) -> int:
        """The size of the parameter block in bytes."""
        return 4 * sum(p.count for p in self.params)

    @property
    def param_storage(self) -> str:
        """Where parameters are: "push" (push constants), "buffer" (the last binding), "none"."""
        if not self.params:
            return "none"
        return "push" if self.param_bytes <= PUSH_CONSTANT_BYTES else "buffer"

    def pack_params(self, values: Mapping[str, Any]) -> bytes:
        """The parameter block (std430: 4-byte numbers without gaps).

        Raises SpecError for a missing or unknown name, a wrong count or a number out of range.
        """
        _check_given("parameter", self.template, [p.name for p in self.params], values)
        parts = []
        for param in self.params:
            value = values[param.name]
            what = f"{self.template}: parameter {param.name!r}"
            if param.count == 1 and not isinstance(value, Sequence):
                parts.append(_scalar_bytes(what, param.type, value))
                continue
            items = _items(what, value)
            if len(items) != param.count:
                raise SpecError(f"{what}: {len(items)} numbers given, {param.count} expected")
            parts += [_scalar_bytes(what, param.type, item) for item in items]
        return b"".join(parts)

    # -- specialisation constants

    @cached_property
    def all_constants(self) -> tuple[Constant, ...]:
        """All specialisation constants; the index is the id.

        First LX, LY, LZ, then `PORTION_<buffer>` of each buffer in portions, then `constants`.
        """
        portion_sizes = tuple(
            Constant(f"PORTION_{b.name}", "uint", 1 << 24) for b in self.buffers if b.portions > 1
        )
        return _WORKGROUP + portion_sizes + self.constants

    @property
    def constant_ids_names(self) -> list[str]:
        """The names of the specialisation constants in the order of their ids."""
        return [c.name for c in self.all_constants]

    @cached_property
    def constant_ids(self) -> dict[str, int]:
        """Name -> id of every specialisation constant."""
        return {name: i for i, name in enumerate(self.constant_ids_names)}

    def pack_constants(self, values: Mapping[str, int | float]) -> tuple[tuple[int, ...], bytes]:
        """(ids, data): 4 bytes per id, in id order, defaults filled in.

        `PORTION_<buffer>` has no default. Raises SpecError as `pack_params` does.
        """
        needed = [f"PORTION_{b.name}" for b in self.buffers if b.portions > 1]
        optional = [n for n in self.constant_ids_names if n not in needed]
        _check_given("constant", self.template, needed, values, optional)
        for name in needed:
            if operator.index(values[name]) % 16 or not values[name]:
                raise SpecError(
                    f"{self.template}: {name} = {values[name]}; a multiple of 16 is needed"
                )
        parts = []
        for c in self.all_constants:
            value = values.get(c.name, c.default)
            parts.append(_scalar_bytes(f"{self.template}: constant {c.name!r}", c.type, value))
        return tuple(range(len(parts))), b"".join(parts)

    def subgroup_size(self, constants: Iterable[tuple[int, bytes]]) -> int:
        """The size that the kernel's subgroups must have with these constants (id, 4 bytes): the
        constant SUBGROUP of kernels with cooperative matrices or subgroup sums. 0: any size."""
        relies = self.features & {"cooperative_matrix", "subgroup_arithmetic"}
        if not relies or "SUBGROUP" not in self.constant_ids:
            return 0
        return int.from_bytes(dict(constants)[self.constant_ids["SUBGROUP"]], "little")

    # -- bindings

    @property
    def binding_count(self) -> int:
        """The number of descriptors in set 0: one for each portion of each buffer, and one for the
        parameter buffer, if any."""
        return sum(b.portions for b in self.buffers) + (self.param_storage == "buffer")

    @cached_property
    def bindings(self) -> dict[str, int]:
        """Buffer name -> first binding number."""
        first, result = 0, {}
        for buffer in self.buffers:
            result[buffer.name] = first
            first += buffer.portions
        return result

    @cached_property
    def texels(self) -> tuple[tuple[int, str], ...]:
        """(binding number, format) of the uniform texel buffers among the bindings."""
        formats = ((self.bindings[b.name], b.texel_format) for b in self.buffers)
        return tuple((binding, format) for binding, format in formats if format)

    def option(self, name: str, default: Any = None) -> Any:
        """The value of an option, or `default`."""
        return dict(self.options).get(name, default)

    # -- identity

    @cached_property
    def _key(self) -> str:
        return _COMPACT.encode({**self.to_json(), "options": dict(sorted(self.options))})

    def key(self) -> str:
        """A text of the structure: the same in every process, different for different specs."""
        return self._key

    # -- files

    def to_json(self) -> dict[str, Any]:
        """The spec as plain JSON data; `from_json` reads it back."""
        return {
            "template": self.template,
            "buffers": [
                [b.name, b.data_type, b.access, b.width, b.portions, b.load] for b in self.buffers
            ],
            "params": [[p.name, p.type, p.count] for p in self.params],
            "constants": [[c.name, c.type, c.default] for c in self.constants],
            "options": [[name, value] for name, value in self.options],
            "features": sorted(self.features),
        }

    @classmethod
    def from_json(cls, data: Any) -> KernelSpec:
        """The spec from the data of `to_json`. The data is untrusted: raises SpecError (a
        ValueError) for any other form."""
        fields = ("template", "buffers", "params", "constants", "options", "features")
        if not isinstance(data, dict) or set(data) != set(fields):
            raise SpecError(f"a kernel: an object with {', '.join(fields)} is expected")
        for name in fields[1:]:
            if not isinstance(data[name], list):
                raise SpecError(f"a kernel's {name}: {data[name]!r} is no list")
        if not all(isinstance(feature, str) for feature in data["features"]):
            raise SpecError(f"a kernel's features: {data['features']!r} are no strings")
        number = (int, float)
        return cls(
            data["template"],
            tuple(
                Buffer(*_row("buffers", r, str, str, str, int, int, str)) for r in data["buffers"]
            ),
            tuple(Param(*_row("params", r, str, str, int)) for r in data["params"]),
            tuple(Constant(*_row("constants", r, str, str, number)) for r in data["constants"]),
            tuple((r[0], _frozen(r[1])) for r in data["options"] if _row("options", r, str, None)),
            frozenset(data["features"]),
        )

    # A comparison of fields would take the option True for 1, which templates distinguish.
    def __eq__(self, other: object) -> bool:
        return self._key == other._key if isinstance(other, KernelSpec) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)


def push_bytes(spec: KernelSpec) -> int:
    """The size of a kernel's push constants in bytes."""
    return spec.param_bytes if spec.param_storage == "push" else 0


def _row(where: str, row: Any, *kinds: Any) -> list[Any]:
    """The row, if it is a list of exactly these kinds of JSON values (None: any)."""
    if not isinstance(row, list) or len(row) != len(kinds):
        raise SpecError(f"a kernel's {where}: {row!r} is no list of {len(kinds)}")
    for item, kind in zip(row, kinds, strict=True):
        # In Python, bool is a kind of int.
        if kind is not None and (isinstance(item, bool) or not isinstance(item, kind)):
            raise SpecError(f"a kernel's {where}: {item!r} in {row!r} is of the wrong type")
    return row


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _workgroup_constant(name: str, default: int) -> Constant:
    # The names LX, LY and LZ are reserved, so the check is bypassed.
    constant = object.__new__(Constant)
    for field, value in (("name", name), ("type", "uint"), ("default", default)):
        object.__setattr__(constant, field, value)
    return constant


#: The size of the workgroup, with the first ids of every module.
_WORKGROUP = tuple(_workgroup_constant(n, d) for n, d in (("LX", 64), ("LY", 1), ("LZ", 1)))


def _check_plain(what: str, value: Any) -> None:
    if isinstance(value, tuple):
        for item in value:
            _check_plain(what, item)
    elif isinstance(value, float) and not math.isfinite(value):
        raise SpecError(f"{what}: {value} cannot be written in GLSL")
    elif value is not None and type(value) not in (str, int, float, bool):
        raise SpecError(
            f"{what}: {type(value).__name__}; accepted: str, int, float, bool, None, tuples of them"
        )


def _check_given(
    kind: str,
    where: str,
    needed: Sequence[str],
    given: Mapping[str, Any],
    optional: Sequence[str] = (),
) -> None:
    missing = [n for n in needed if n not in given]
    unknown = [n for n in given if n not in needed and n not in optional]
    if missing or unknown:
        faults = [f"missing {', '.join(missing)}"] * bool(missing)
        faults += [f"unknown {', '.join(map(str, unknown))}"] * bool(unknown)
        names = ", ".join([*needed, *optional]) or "none"
        raise SpecError(f"{where}: {kind}s: {'; '.join(faults)} (has: {names})")


def _items(what: str, value: Any) -> list[Any]:
    if isinstance(value, (str, bytes)):
        raise SpecError(f"{what}: {type(value).__name__} given, numbers expected")
    try:
        return list(value)
    except TypeError:
        raise SpecError(f"{what}: one number given, a sequence expected") from None


def _scalar_bytes(what: str, kind: str, value: Any) -> bytes:
    try:
        if kind == "float":
            return struct.pack("<f", float(value))
        number = operator.index(value)
        return struct.pack("<i" if kind == "int" else "<I", number)
    except (TypeError, ValueError):
        raise SpecError(f"{what}: {value!r} is no {kind}") from None
    except (OverflowError, struct.error):
        raise SpecError(f"{what}: {value!r} does not fit in a 32-bit {kind}") from None
