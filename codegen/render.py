"""Rendering: a `KernelSpec` and the templates of `shaders/` become GLSL. Deterministic, pure text.

A template can use its options by name, and `spec`, `buffers` (a list of `BufferView`), `params`,
`constants`, `features`, `int64_native`, `int64_used`, `arithmetic_type(data_type)`. It may set
`extensions` (a list of GLSL extensions) before it includes the prelude. Any other name is an error
(StrictUndefined).
"""

from __future__ import annotations

import difflib

# Jinja imports this at the first template, on a thread, while the process may be forked.
import encodings.unicode_escape  # noqa: F401
import functools
import os
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jinja2
import jinja2.meta
import jinja2.nodes

from webnn_vk.support.dataclass import dataclass

from .library import insert_functions
from .spec import ELEMENT_BYTES, TEMPLATE_VARIABLES, Buffer, KernelSpec, SpecError
from .template_files import SEARCH_PATH, SHADERS, forget

_loader = jinja2.FileSystemLoader(SHADERS)
_loader.searchpath = SEARCH_PATH

_WORDS = {"float32": "float", "int32": "int", "uint32": "uint"}
_VECTORS = {"float": "vec4", "int": "ivec4", "uint": "uvec4"}


class RenderError(SpecError):
    """A template is missing, cannot be parsed, or needs an option that was not given."""


def arithmetic_type(data_type: str, int64_native: bool = False) -> str:
    """The GLSL type for computing with elements of a data type."""
    match data_type:
        case "float32" | "float16":
            return "float"
        case "int32" | "int8":
            return "int"
        case "uint32" | "uint16" | "bits16" | "uint8":
            return "uint"
        case "int64":
            return "int64_t" if int64_native else "I64"
        case "uint64":
            return "uint64_t" if int64_native else "U64"
    raise RenderError(f"data type {data_type!r}; accepted: {', '.join(ELEMENT_BYTES)}")


@dataclass(frozen=True, kw_only=True)
class BufferView(Buffer):
    """How a `Buffer` is declared and accessed in GLSL.

    storage: the element type of the block. form: the form of an element in it, "plain", "native"
    (a 16- or 8-bit integer type), "packed" (in 32-bit words) or "pair" (64 bits in two words).
    """

    binding: int
    arithmetic: str
    vector: str | None
    storage: str
    form: str
    per_slot: int

    @property
    def bits(self) -> int:
        """The number of bits of an element."""
        return 8 * ELEMENT_BYTES[self.data_type]

    @property
    def register(self) -> str:
        """The GLSL type of a loaded cell: 16- and 8-bit types exist only in the buffer's block."""
        if self.form == "native" and self.bits < 32:
            return "int" if self.storage == "int8_t" else "uint"
        return self.storage

    @property
    def reads(self) -> bool:
        """Whether the kernel reads it."""
        return "r" in self.access

    @property
    def writes(self) -> bool:
        """Whether the kernel writes it."""
        return "w" in self.access

    @property
    def atomic(self) -> bool:
        """Whether atomics write it, as several elements share a word."""
        return self.form == "packed" and self.writes

    @property
    def qualifiers(self) -> str:
        """Memory qualifiers. A buffer written by atomics, which also read, isn't writeonly."""
        if self.access == "r":
            return "restrict readonly"
        return "restrict writeonly" if self.access == "w" and not self.atomic else "restrict"


def _view(buffer: Buffer, binding: int, features: frozenset[str]) -> BufferView:
    native64 = "int64" in features
    arithmetic = arithmetic_type(buffer.data_type, native64)
    bits = 8 * ELEMENT_BYTES[buffer.data_type]
    form, per_slot = "plain", buffer.width
    if bits == 32:
        kind = _WORDS[buffer.data_type]
        storage = kind if buffer.width == 1 else _VECTORS[kind]
    elif bits == 64:
        form, storage = ("native", arithmetic) if native64 else ("pair", "uvec2")
    elif buffer.width == 1 and ("float16" if bits == 16 else "int8") in features:
        storage = {"int8": "int8_t", "uint8": "uint8_t"}.get(buffer.data_type, "uint16_t")
        form = "native"
    else:
        form, per_slot = "packed", 32 // bits
        storage = "uint"
        if bits == 16 and buffer.width > 1:
            storage, per_slot = {4: "uvec2", 8: "uvec4"}[buffer.width], buffer.width
    vector = _VECTORS.get(arithmetic) if buffer.width > 1 else None
    return BufferView(
        **vars(buffer), binding=binding, arithmetic=arithmetic, vector=vector, storage=storage,
        form=form, per_slot=per_slot,
    )


@functools.cache
def environment() -> jinja2.Environment:
    """The Jinja environment of the shader templates."""
    return jinja2.Environment(
        loader=_loader,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        auto_reload=False,
        cache_size=-1,
    )


def add_template_dir(folder: str | os.PathLike[str]) -> None:
    """Find templates (`NAME.comp.j2`) in this folder, too. After editing a template, call it again
    to reload it. Templates can include the library's `lib/`. RenderError where the folder is
    missing, or has another template with the name of one of the library's.
    """
    path = Path(folder).resolve()
    if not path.is_dir():
        raise RenderError(f"template folder {str(folder)!r}: there is no such folder")
    if path != SHADERS and str(path) not in _loader.searchpath:
        taken = sorted(
            name for name in _names(path) & _names(SHADERS)
            if (path / name).read_bytes() != (SHADERS / name).read_bytes()
        )
        if taken:
            more = f" (and {len(taken) - 1} more)" if len(taken) > 1 else ""
            raise RenderError(
                f"template folder {str(folder)!r}: {taken[0]}{more} has the name of a template of "
                "the library, which is another; rename it"
            )
        _loader.searchpath.append(str(path))
    _forget()


@contextmanager
def own_templates() -> Iterator[None]:
    """Removes folders that were added inside (`add_template_dir`) at the end."""
    before = list(_loader.searchpath)
    try:
        yield
    finally:
        _loader.searchpath[:] = before
        _forget()


def _forget() -> None:
    if environment().cache is not None:
        environment().cache.clear()
    render.cache_clear()
    forget()


def _names(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*.comp.j2")}


def variables(spec: KernelSpec) -> dict[str, Any]:
    """The variables of a spec's template."""
    native64 = "int64" in spec.features
    buffers = [_view(b, spec.bindings[b.name], spec.features) for b in spec.buffers]
    return {
        "spec": spec,
        "buffers": buffers,
        "params": spec.params,
        "constants": spec.all_constants[3:],
        "features": spec.features,
        "int64_native": native64,
        "int64_used": any(b.bits == 64 for b in buffers) or bool(spec.option("int64")),
        "arithmetic_type": lambda data_type: arithmetic_type(data_type, native64),
        **dict(spec.options),
    }


@functools.lru_cache(maxsize=1024)  # some 6 kB each
def render(spec: KernelSpec) -> str:
    """The GLSL of a kernel. The same spec gives the same text in every process.

    Raises RenderError where the template is missing or faulty, or an option is missing.
    """
    try:
        given = variables(spec)
        text = environment().get_template(spec.template).render(given)
        return insert_functions(
            text, environment(), int64_used=given["int64_used"],
            int64_native=given["int64_native"],
            exact_conversions="denorm_preserve_f16" in spec.features,
        )
    except jinja2.TemplateNotFound as error:
        raise RenderError(_missing(error.name)) from None
    except jinja2.TemplateSyntaxError as error:
        raise RenderError(f"{error.name}:{error.lineno}: {error.message}") from error
    except jinja2.UndefinedError as error:
        place = _place_of(error) or spec.template
        raise RenderError(f"{place}: {error.message} (is an option missing?)") from error
    except Exception as error:
        place = _place_of(error)
        if place is None:  # not raised by a template
            raise
        kind = "" if isinstance(error, SpecError) else f"{type(error).__name__}: "
        raise RenderError(f"{place}: {kind}{error}") from error


def _place_of(error: Exception) -> str | None:
    """FILE:LINE of the template that raised the error: Jinja puts it into the traceback."""
    place = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        path = Path(frame.f_code.co_filename)
        if "__jinja_exception__" in frame.f_globals and path.suffix == ".j2":
            place = f"{shown(str(path), path.name)}:{line}"
    return place


def shown(filename: str | None, name: str | None) -> str:
    """A template's file for messages: the library's by name, others by their path."""
    if filename is None or Path(filename).is_relative_to(SHADERS):
        return name or "template"
    path = Path(filename)
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _missing(name: str | None) -> str:
    near = difflib.get_close_matches(str(name), templates(), 1)
    return f"no template {name!r} in {', '.join(map(str, _loader.searchpath))}" + (
        f"; did you mean {near[0]}?" if near else ""
    )


@dataclass(frozen=True)
class TemplateInfo:
    """A template: its name, the first line of its first comment, the whole comment, and the names
    of the options that it uses."""

    name: str
    description: str
    comment: str
    options: tuple[str, ...]


def template_texts(name: str) -> dict[str, str]:
    """The texts of a template and of included ones, by name. Raises RenderError."""
    texts: dict[str, str] = {}
    front = [name]
    env = environment()
    while front:
        name = front.pop()
        if name in texts:
            continue
        try:
            texts[name], _, _ = env.loader.get_source(env, name)
            tree = env.parse(texts[name], name)
        except jinja2.TemplateNotFound as error:
            raise RenderError(_missing(error.name)) from None
        except jinja2.TemplateSyntaxError as error:
            raise RenderError(f"{error.name}:{error.lineno}: {error.message}") from error
        front += [other for other in jinja2.meta.find_referenced_templates(tree) if other]
    return texts


def template_info(name: str) -> TemplateInfo:
    """The description of a template for the command line. Raises RenderError."""
    texts = template_texts(name)
    wanted: set[str] = set()
    given: set[str] = set(TEMPLATE_VARIABLES)
    for text in texts.values():
        tree = environment().parse(text)
        wanted |= jinja2.meta.find_undeclared_variables(tree)
        # Variables that a template sets for included ones are not options.
        for assigned in tree.find_all((jinja2.nodes.Assign, jinja2.nodes.AssignBlock)):
            given |= {n.name for n in (assigned.target, *assigned.target.find_all(
                jinja2.nodes.Name)) if isinstance(n, jinja2.nodes.Name)}
        given |= {macro.name for macro in tree.find_all(jinja2.nodes.Macro)}
    comment = re.match(r"\s*\{#-?(.*?)-?#\}(?:\s*\{#-?(.*?)-?#\})?", texts[name], re.DOTALL)
    parts = [part.strip() for part in comment.groups() if part] if comment else []
    lines = [line.strip() for part in parts for line in part.splitlines()]
    first = lines[0] if lines else ""
    return TemplateInfo(name, first, "\n    ".join(lines), tuple(sorted(wanted - given)))


def templates() -> list[str]:
    """The sorted names of the kernel templates, for `KernelSpec.template`."""
    return sorted({name for folder in _loader.searchpath for name in _names(Path(folder))})
