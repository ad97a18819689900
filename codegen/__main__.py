"""The generator on the command line: `python -m webnn_vk.codegen`.

    list
    describe scatter_clear
    render scatter_clear --buffer slots:uint32:w:4 --param count
    compile scatter_clear --buffer slots:uint32:w:4 --param count -o clear.spv
    disassemble clear.spv
    inspect clear.spv --chip navi31         compile for a chip that is not in the machine
    pack FILE [--entries]                   show the contents of a shader archive
    pack FILE --specs MODULE:FUNCTION       write one with the specs that the function returns

`describe` shows the parameters of a template, with a command line for it. A buffer is
NAME:TYPE[:ACCESS[:WIDTH[:PORTIONS[:LOAD]]]], a parameter NAME[:TYPE[:COUNT]], a constant
NAME[:TYPE[:DEFAULT]], an option NAME=VALUE, where VALUE is a Python literal or else a text. Your
own template is a path to NAME.comp.j2, or a name in a --template-dir. `list`, `describe`, `compile`
and `inspect` take --json. No GPU is needed. Exit status: 0, or 2 with a message on the standard
error.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import spirv
from .archive import ARCHIVE_PATH, ShaderArchive, find_archive
from .arguments import read_spec
from .compiler import find_compiler
from .describe import describe, description
from .glsl import CompilerUnavailable, GlslError, Source
from .isa import IsaError, Module
from .isa.chips import CHIPS
from .origins import placed
from .render import SHADERS, add_template_dir, own_templates, render, template_info, templates
from .spec import FEATURES, KernelSpec, SpecError
from .store import ShaderUnavailable, build_pack

#: The exceptions of commands, besides argparse's.
ERRORS = (GlslError, CompilerUnavailable, ShaderUnavailable, IsaError, OSError, ValueError)
#: Files that commands read besides templates.
_FILES = {"disassemble": (".spv",), "inspect": (".spv", ".comp", ".glsl")}


def _find_own(arguments: argparse.Namespace) -> None:
    """Register the user's templates: from --template-dir, and one given as a path."""
    for folder in arguments.template_dir:
        add_template_dir(folder)
    text = getattr(arguments, "template", "")
    path = Path(text)
    given = "/" in text or path.is_file()
    if path.suffix == ".j2" and given and path.as_posix() not in templates():
        if not path.name.endswith(".comp.j2"):
            raise SpecError(f"{path}: a template is called NAME.comp.j2")
        if not path.is_file():
            raise SpecError(f"{path}: there is no such file")
        add_template_dir(path.parent)
        arguments.template = path.name
    elif path.suffix not in ("", ".j2", *arguments.files):
        raise SpecError(f"{path}: a template's name, or a path to NAME.comp.j2, is expected"
                        + "".join(f", or {suffix}" for suffix in arguments.files))


def _error_text(error: Exception, arguments: argparse.Namespace) -> str:
    """The text of an error."""
    if isinstance(error, FileNotFoundError) and error.filename is not None:
        return f"{error.filename}: there is no such file"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, (SpecError, GlslError)) and getattr(arguments, "buffer", None) == []:
        name = arguments.template.removesuffix(".comp.j2")
        if f"{name}.comp.j2" in templates():
            return (f"{error}\n`describe {name}` shows which --buffer, --param and --option it "
                    "takes")
    return str(error)


def _spec(arguments: argparse.Namespace) -> KernelSpec:
    return read_spec(
        arguments.template,
        buffers=arguments.buffer,
        params=arguments.param,
        constants=arguments.constant,
        options=arguments.option,
        features=arguments.feature,
    )


def _compiled(arguments: argparse.Namespace) -> bytes:
    spec = _spec(arguments)
    try:
        module = _from_glsl(Source(render(spec), spec.template), arguments)
    except GlslError as error:
        raise placed(error, spec) from None
    return spirv.add_float_controls(module, spec.features)


def _from_glsl(source: Source, arguments: argparse.Namespace) -> bytes:
    compiler = find_compiler(arguments.compiler)
    if compiler is None:
        raise CompilerUnavailable(
            "no GLSL compiler found: install glslang-tools (glslangValidator), or the Python "
            "package vkdispatch-vulkan-native, and look at WEBNN_VK_GLSLANG"
        )
    (result,) = compiler.compile([source])
    if isinstance(result, GlslError):
        raise result
    return result if arguments.names else spirv.strip(result)


def _list(arguments: argparse.Namespace) -> None:
    names = templates()
    if arguments.json:
        about = map(template_info, names)
        _print_json([{"template": i.name, "description": i.description, "options": i.options}
                     for i in about])
        return
    if not names:
        print(f"no templates in {SHADERS}", file=sys.stderr)
    for name in names:
        about = template_info(name)
        print(f"{name}\n    {about.description or '(no description)'}")
        if about.options:
            print(f"    options: {', '.join(about.options)}")


def _describe(arguments: argparse.Namespace) -> None:
    if arguments.json:
        _print_json(description(arguments.template))
    else:
        print(describe(arguments.template))


def _print_json(data: Any) -> None:
    print(json.dumps(data, indent=2))


def _render(arguments: argparse.Namespace) -> None:
    _write_text(render(_spec(arguments)), arguments.output)


def _compile(arguments: argparse.Namespace) -> None:
    module = _compiled(arguments)
    output = arguments.output or f"{Path(arguments.template).name.split('.')[0]}.spv"
    Path(output).write_bytes(module)
    about = spirv.info(module)
    if arguments.json:
        _print_json({
            "file": str(output), "bytes": about.size, "instructions": about.instructions,
            "bindings": about.bindings, "capabilities": sorted(about.capabilities),
        })
        return
    print(f"{output}: {about.size} bytes, {about.instructions} instructions, bindings "
          f"{len(about.bindings)}, capabilities {', '.join(sorted(about.capabilities))}")


def _disassemble(arguments: argparse.Namespace) -> None:
    if arguments.template.endswith(".spv"):
        module = Path(arguments.template).read_bytes()
    else:
        module = _compiled(arguments)
    _write_text(spirv.disassembled(module), arguments.output)


def _module(arguments: argparse.Namespace) -> Module:
    """The pipeline of a template, a .spv file or GLSL."""
    from . import inspect

    constants = inspect.given_constants(arguments.set)
    path = Path(arguments.template)
    if path.suffix == ".spv":
        return inspect.module_of_file(path.read_bytes(), constants, path.name)
    if path.suffix in (".comp", ".glsl"):
        source = Source(path.read_text(encoding="utf-8"), path.name)
        return inspect.module_of_file(_from_glsl(source, arguments), constants, path.name)
    return inspect.module_of_spec(_spec(arguments), _compiled(arguments), constants, path.name)


def _inspect(arguments: argparse.Namespace) -> None:
    # Only this command starts a Vulkan driver.
    from .isa import compile_for, text

    module = _module(arguments)
    (compiled,) = compile_for(arguments.chip, [module])
    if arguments.json:
        assembly = {"isa": compiled.assembly} if arguments.isa else {}
        _print_json({
            "shader": module.name, "chip": arguments.chip, **text.data(compiled), **assembly,
        })
    else:
        print(f"{module.name} on {arguments.chip}\n{text.report(compiled)}")
        if arguments.isa:
            print(f"\n{compiled.assembly.rstrip()}")
    if arguments.output:
        _write_text(compiled.assembly, arguments.output)


def _specs(text: str, features: Sequence[str]) -> list[KernelSpec]:
    """The specs that MODULE:FUNCTION returns. The function gets the features, if there are any."""
    module_name, colon, name = text.partition(":")
    if not colon:
        raise SpecError(f"--specs {text!r}: MODULE:FUNCTION is needed")
    sys.path.insert(0, "")  # modules of the working folder
    try:
        try:
            function = getattr(importlib.import_module(module_name), name)
        except (ImportError, AttributeError) as error:
            raise SpecError(f"--specs {text!r}: {error}") from None
        return list(function(frozenset(features)) if features else function())
    finally:
        if "" in sys.path:
            sys.path.remove("")


def _pack(arguments: argparse.Namespace) -> None:
    if arguments.specs:
        if not arguments.file:
            raise SpecError("--specs: the name of the file to write is needed too")
        build_pack(_specs(arguments.specs, arguments.feature), arguments.file)
    pack = ShaderArchive(arguments.file or find_archive() or ARCHIVE_PATH)
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

    def part() -> argparse.ArgumentParser:
        return argparse.ArgumentParser(add_help=False)

    folders, as_json, spec, compiling = (part() for _ in range(4))
    folders.add_argument("--template-dir", action="append", default=[], metavar="DIR",
                         help="find templates there too")
    as_json.add_argument("--json", action="store_true", help="JSON alone on stdout")
    for name, metavar, text in (
        ("buffer", "NAME:TYPE[:ACCESS…]", "NAME:TYPE[:ACCESS[:WIDTH[:PORTIONS[:LOAD]]]], in the "
         "order of the bindings; LOAD is storage (default) or texel"),
        ("param", "NAME[:TYPE[:COUNT]]",
         "a number given at each dispatch; TYPE uint (default), int, float"),
        ("constant", "NAME[:TYPE[:DEFAULT]]", "a specialisation constant"),
        ("option", "NAME=VALUE", "a variable of the template: a Python literal, else a text"),
        ("feature", "NAME", f"a device feature to use: {', '.join(sorted(FEATURES))}"),
    ):
        spec.add_argument(f"--{name}", action="append", default=[], metavar=metavar, help=text)
    spec.add_argument("-o", "--output", metavar="FILE", help="write there")
    compiling.add_argument("--names", action="store_true", help="keep names and debug text")
    compiling.add_argument("--compiler", choices=("auto", "process"),
                           help="default: WEBNN_VK_GLSLANG, else auto")

    def command(
        name: str, function: Any, text: str, *parents: argparse.ArgumentParser, or_file: str = "",
    ) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text, parents=parents)
        sub.set_defaults(function=function, files=_FILES.get(name, ()))
        if name not in ("list", "pack"):
            sub.add_argument("template", help="name of a template (see list), or a path to your "
                             f"own{or_file}")
        return sub

    command("list", _list, "list the templates with their options", folders, as_json)
    command("describe", _describe, "what a template takes, and a command line for it", folders,
            as_json)
    command("render", _render, "print the GLSL of a template", folders, spec)
    command("compile", _compile, "compile a template to SPIR-V", folders, spec, compiling,
            as_json)
    command("disassemble", _disassemble, "show the SPIR-V of a template or of a .spv file as text",
            folders, spec, compiling, or_file=" or a .spv file")
    sub = command("inspect", _inspect, "registers, spills, occupancy and ISA of a template, a .spv "
                  "file or GLSL under a chip's compiler", folders, spec, compiling, as_json,
                  or_file=" or a .spv or .comp file")
    sub.add_argument("--chip", default="NAVI21", help="default: NAVI21, by the installed RADV; "
                     f"by scripts/install-chips: {', '.join(CHIPS)}")
    sub.add_argument("--set", action="append", default=[], metavar="NAME=NUMBER",
                     help="a specialisation constant; by id in a .spv or .comp file")
    sub.add_argument("--isa", action="store_true",
                     help="print the assembly, too; -o writes it to a file")
    pack = command("pack", _pack, "show or write an archive of precompiled modules")
    pack.add_argument("--specs", metavar="MODULE:FUNCTION",
                      help="write FILE first: the function returns the KernelSpecs")
    pack.add_argument("--feature", action="append", default=[], metavar="NAME",
                      help="passed to this function, all in a frozenset")
    pack.add_argument("file", nargs="?", help="default: the installed package's")
    pack.add_argument("--entries", action="store_true", help="list addresses and sizes")
    return parser


def module_of(arguments: Sequence[str]) -> Module:
    """The pipeline that `inspect` compiles with these arguments. Raises as the command's parts."""
    parsed = _parser().parse_args(["inspect", *arguments])
    with own_templates():
        _find_own(parsed)
        return _module(parsed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    parsed = _parser().parse_args(arguments)
    try:
        with own_templates():  # the calling program may continue
            if hasattr(parsed, "template_dir"):
                _find_own(parsed)
            parsed.function(parsed)
    except BrokenPipeError:
        sys.stderr.close()
    except ERRORS as error:
        print(f"error: {_error_text(error, parsed)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
