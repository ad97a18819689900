"""The generator on the command line: `python -m webnn_vk.codegen`.

    list                                    the templates, what they do, the options they look at
    render copy.comp.j2 --buffer a:float16 --buffer out:float16:w --param n
    compile … -o copy.spv                   the same arguments, to SPIR-V
    disassemble …  |  disassemble copy.spv  SPIR-V as text
    pack FILE [--entries]                   what a pack holds
    pack FILE --specs MODULE:FUNCTION       writes one of the specs that the function returns

A buffer is NAME:TYPE[:ACCESS[:WIDTH[:PORTIONS]]], a parameter NAME[:TYPE[:COUNT]], a constant
NAME[:TYPE[:DEFAULT]], an option NAME=VALUE with VALUE a Python literal or else a text. No GPU is
needed. Exit status: 0, or 2 with a message on the standard error.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import spirv
from .compiler import find_compiler
from .glsl import CompilerUnavailable, GlslError, Source
from .pack import PACK_PATH, Pack
from .render import SHADERS, render, template_info, templates
from .spec import FEATURES, Buffer, Constant, KernelSpec, Param, SpecError
from .store import ShaderUnavailable, build_pack


def _fields(text: str, most: int) -> list[str]:
    fields = text.split(":")
    if len(fields) > most:
        raise SpecError(f"{text!r}: at most {most} parts separated by ':' are accepted")
    return fields


def _int(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise SpecError(f"{text!r} is no whole number") from None


def _buffer(text: str) -> Buffer:
    name, *rest = _fields(text, 5)
    if not rest:
        raise SpecError(f"buffer {text!r}: NAME:TYPE is needed")
    return Buffer(name, *rest[:2], *map(_int, rest[2:]))


def _param(text: str) -> Param:
    name, *rest = _fields(text, 3)
    return Param(name, *rest[:1], *map(_int, rest[1:]))


def _constant(text: str) -> Constant:
    name, *rest = _fields(text, 3)
    if len(rest) < 2:
        return Constant(name, *rest)
    return Constant(name, rest[0], float(rest[1]) if rest[0] == "float" else _int(rest[1]))


def _option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise SpecError(f"option {text!r}: NAME=VALUE is accepted")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def _spec(arguments: argparse.Namespace) -> KernelSpec:
    template = arguments.template
    if not template.endswith(".j2"):
        template += ".comp.j2"
    return KernelSpec(
        template,
        tuple(map(_buffer, arguments.buffer)),
        tuple(map(_param, arguments.param)),
        tuple(map(_constant, arguments.constant)),
        tuple(map(_option, arguments.option)),
        frozenset(arguments.feature),
    )


def _compiled(arguments: argparse.Namespace) -> bytes:
    spec = _spec(arguments)
    compiler = find_compiler(arguments.compiler)
    if compiler is None:
        raise CompilerUnavailable(
            "no GLSL compiler found: install glslang-tools (glslangValidator), or the Python "
            "package vkdispatch-vulkan-native, and look at WEBNN_VK_GLSLANG"
        )
    (result,) = compiler.compile([Source(render(spec), spec.template)])
    if isinstance(result, GlslError):
        raise result
    module = result if arguments.names else spirv.strip(result)
    return spirv.add_float_controls(module, spec.features)


def _list(arguments: argparse.Namespace) -> None:
    names = templates()
    if not names:
        print(f"no templates in {SHADERS}", file=sys.stderr)
    for name in names:
        about = template_info(name)
        print(f"{name}\n    {about.description or '(no description)'}")
        if about.options:
            print(f"    options: {', '.join(about.options)}")


def _render(arguments: argparse.Namespace) -> None:
    _write_text(render(_spec(arguments)), arguments.output)


def _compile(arguments: argparse.Namespace) -> None:
    module = _compiled(arguments)
    output = arguments.output or f"{Path(arguments.template).name.split('.')[0]}.spv"
    Path(output).write_bytes(module)
    about = spirv.info(module)
    print(f"{output}: {about.size} bytes, {about.instructions} instructions, bindings "
          f"{len(about.bindings)}, capabilities {', '.join(sorted(about.capabilities))}")


def _disassemble(arguments: argparse.Namespace) -> None:
    if arguments.template.endswith(".spv"):
        module = Path(arguments.template).read_bytes()
    else:
        module = _compiled(arguments)
    spirv.info(module)
    program = shutil.which("spirv-dis")
    if program is None:
        _write_text(spirv.listing(module), arguments.output)
        return
    done = subprocess.run([program, "--no-color", "-"], input=module, capture_output=True)
    if done.returncode:
        raise spirv.SpirvError(f"spirv-dis: {done.stderr.decode(errors='replace').strip()}")
    _write_text(done.stdout.decode(), arguments.output)


def _specs(text: str, features: Sequence[str]) -> list[KernelSpec]:
    """What MODULE:FUNCTION returns; the function is given the features when there are any."""
    module_name, colon, name = text.partition(":")
    if not colon:
        raise SpecError(f"--specs {text!r}: MODULE:FUNCTION is needed")
    sys.path.insert(0, "")
    try:
        function = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise SpecError(f"--specs {text!r}: {error}") from None
    return list(function(frozenset(features)) if features else function())


def _pack(arguments: argparse.Namespace) -> None:
    if arguments.specs:
        if not arguments.file:
            raise SpecError("--specs: the name of the pack to write is needed too")
        build_pack(_specs(arguments.specs, arguments.feature), arguments.file)
    pack = Pack(arguments.file or PACK_PATH)
    about = pack.about
    size = pack.path.stat().st_size
    print(f"{pack.path}: {len(pack)} modules, {size} bytes ({about['spirv_bytes']} of SPIR-V)")
    print(f"compiler: {about.get('compiler', 'unknown')}")
    print(f"templates: {', '.join(about.get('templates', []))}")
    if arguments.entries:
        for key, size in pack.entries():
            print(f"{key.hex()} {size:8d}")


def _write_text(text: str, output: str | None) -> None:
    if output is None:
        sys.stdout.write(text)
    else:
        Path(output).write_text(text, encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m webnn_vk.codegen", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, function: Any, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(function=function)
        return sub

    command("list", _list, "list the templates with their options")
    for name, function, text in (
        ("render", _render, "print the GLSL of a template"),
        ("compile", _compile, "compile a template to SPIR-V"),
        ("disassemble", _disassemble, "show the SPIR-V of a template or of a .spv file as text"),
    ):
        sub = command(name, function, text)
        sub.add_argument("template", help="name of a template (see list)" + (
            " or a .spv file" if name == "disassemble" else ""))
        sub.add_argument("--buffer", action="append", default=[], metavar="NAME:TYPE[:ACCESS…]",
                         help="NAME:TYPE[:ACCESS[:WIDTH[:PORTIONS]]], in the order of the bindings")
        sub.add_argument("--param", action="append", default=[], metavar="NAME[:TYPE[:COUNT]]",
                         help="a number given at each dispatch; TYPE uint (default), int, float")
        sub.add_argument("--constant", action="append", default=[],
                         metavar="NAME[:TYPE[:DEFAULT]]", help="a specialisation constant")
        sub.add_argument("--option", action="append", default=[], metavar="NAME=VALUE",
                         help="a variable of the template: a Python literal, else a text")
        sub.add_argument("--feature", action="append", default=[], metavar="NAME",
                         help=f"a device feature to use: {', '.join(sorted(FEATURES))}")
        sub.add_argument("-o", "--output", metavar="FILE", help="write there")
        if name != "render":
            sub.add_argument("--names", action="store_true", help="keep names and debug text")
            sub.add_argument("--compiler", choices=("auto", "process"),
                             help="default: WEBNN_VK_GLSLANG, else auto")
    pack = command("pack", _pack, "show, or write, a pack of precompiled modules")
    pack.add_argument("--specs", metavar="MODULE:FUNCTION",
                      help="write FILE first: the function returns the KernelSpecs")
    pack.add_argument("--feature", action="append", default=[], metavar="NAME",
                      help="given to that function, all in a frozenset")
    pack.add_argument("file", nargs="?", help="default: the installed package's")
    pack.add_argument("--entries", action="store_true", help="list addresses and sizes")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    parsed = _parser().parse_args(arguments)
    try:
        parsed.function(parsed)
    except BrokenPipeError:
        sys.stderr.close()
    except (GlslError, CompilerUnavailable, ShaderUnavailable, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
