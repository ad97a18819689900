"""``webnn-vk shader``: commands, options and their help. What a command does is imported when it
runs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from .cli_options import Device, Input, Json, Model, Shape, complete_models, option, options_of

shader_app = typer.Typer(
    help="Kernels: templates, a model's kernels, your own.", no_args_is_help=True,
    epilog="Example: webnn-vk shader list", rich_markup_mode=None,
)


Chip = Annotated[str | None, option(
    "--chip", metavar="NAME", help="Compile for this chip, such as navi31, dg2, adreno750 or "
                                   "mali-g610; needs no GPU.")]
Form = Annotated[Literal["spec", "glsl", "spirv", "isa"], typer.Option(
    "--form", help="What to print.")]


@shader_app.command("list", epilog="Example: webnn-vk shader list model.onnx --chip NAVI21")
def shader_list(
    model: Annotated[str | None, typer.Argument(
        metavar="[MODEL]", autocompletion=complete_models, show_default=False,
        help="List the kernels of this model, not the templates.")] = None,
    device: Device = None, chip: Chip = None, shape: Shape = None, input: Input = None,
    json: Json = False,
) -> None:
    """List the templates, or the kernels of a model."""
    from .kernels import of_model
    from .shaders import list_kernels, list_templates

    if model is None:
        list_templates(json)
        return
    list_kernels(of_model(options_of(model, device, json, shape, input)), device, chip, json)


@shader_app.command("show", epilog="Example: webnn-vk shader show model.onnx --step 3 --form spirv")
def shader_show(
    model: Model,
    step: Annotated[int, typer.Option(
        "--step", min=0, help="Number of the kernel: see shader list.")] = 0,
    form: Form = "spec", device: Device = None, chip: Chip = None, shape: Shape = None,
    input: Input = None, json: Json = False,
) -> None:
    """Show a kernel of a model; with --chip registers, loops and ISA."""
    from .kernels import of_model
    from .shaders import show

    show(of_model(options_of(model, device, json, shape, input)), device, chip, step, form, json)


@shader_app.command(
    "stats", epilog="Example: webnn-vk shader stats model.onnx --chip adreno750,mali-g610,dg2",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def shader_stats(
    context: typer.Context,
    model: Annotated[str, typer.Argument(
        metavar="MODEL", autocompletion=complete_models, show_default=False,
        help="A model, or a shader: a .comp.j2, .spv or .comp file.")],
    chip: Annotated[str, typer.Option(
        "--chip", metavar="NAME,NAME", show_default=False, help="The chips, or all.")],
    shape: Shape = None, input: Input = None, json: Json = False,
) -> None:
    """Show spills, registers, occupancy and estimated cycles on chips that are not in the machine.

    Takes the options of shader inspect for a shader. scripts/install-chips installs the compilers.
    """
    from webnn_vk.codegen.isa.chips import CHIPS

    from .chips import stats, stats_of_own
    from .kernels import of_model

    chips = list(CHIPS) if chip == "all" else [name for name in chip.split(",") if name]
    if model.endswith((".j2", ".spv", ".comp", ".glsl")):
        stats_of_own([model, *context.args], chips, json)
    elif context.args:
        raise typer.BadParameter(f"{context.args[0]} is only for shaders")
    else:
        stats(of_model(options_of(model, None, json, shape, input)), chips, json)


@shader_app.command("operator", epilog="Example: webnn-vk shader operator relu --shape input=512 "
                                       "--chip NAVI21")
def shader_operator(
    name: Annotated[str, typer.Argument(metavar="OPERATOR", show_default=False,
                                        help="Its name: see webnn-vk operators.")],
    shape: Shape = None,
    option: Annotated[list[str] | None, option(
        "--option", metavar="NAME=VALUE", help="An argument: padding=[1,1,1,1].")] = None,
    constant: Annotated[list[str] | None, option(
        "--constant", metavar="NAME", help="Make this operand a constant, like weights.")] = None,
    data_type: Annotated[str, typer.Option(
        "--type", metavar="TYPE", help="Data type of the operands.")] = "float32",
    step: Annotated[int, typer.Option("--step", min=0, help="Number of the kernel.")] = 0,
    form: Form = "spec", device: Device = None, chip: Chip = None, json: Json = False,
) -> None:
    """Show the kernel of one operator on operands of these shapes."""
    from .kernels import OperatorCall, of_operator
    from .models import parse_shapes
    from .shaders import show

    call = OperatorCall(
        name, parse_shapes(shape or []), data_type, tuple(constant or ()), _literals(option or [])
    )
    show(of_operator(call), device, chip, step, form, json)


def _literals(given: list[str]) -> dict[str, Any]:
    import ast

    values = {}
    for text in given:
        name, equals, value = text.partition("=")
        try:
            values[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            values[name] = value
        if not (name.isidentifier() and equals):
            raise typer.BadParameter(f"--option: {text!r} is not NAME=VALUE")
    return values


@shader_app.command("describe", epilog="Example: webnn-vk shader describe scatter_clear")
def shader_describe(
    template: Annotated[str, typer.Argument(
        metavar="TEMPLATE", show_default=False,
        help="Its name (see webnn-vk shader list), or a path to your own.")],
    json: Json = False,
) -> None:
    """Show the parameters of a template, and a command that compiles it."""
    _generate("describe", [template, *["--json"] * json])


@shader_app.command(
    "compile", epilog="Example: webnn-vk shader compile scatter_clear --buffer slots:uint32:w:4 "
                      "--param count -o clear.spv",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def shader_compile(
    context: typer.Context,
    template: Annotated[str, typer.Argument(metavar="TEMPLATE", show_default=False,
                                            help="Its name, or a path to your own.")],
) -> None:
    """Compile a template, or your own, to SPIR-V.

    Takes the options of python -m webnn_vk.codegen compile: --buffer NAME:TYPE, --param NAME,
    --constant NAME, --option NAME=VALUE, --feature NAME, --template-dir DIR, -o FILE, --json.
    """
    _generate("compile", [template, *context.args])


@shader_app.command(
    "inspect", epilog="Example: webnn-vk shader inspect double.comp.j2 --buffer y:float32:rw "
                      "--param count --chip NAVI21",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def shader_inspect(
    context: typer.Context,
    template: Annotated[str, typer.Argument(
        metavar="FILE", show_default=False,
        help="A template, a path to your own, a .spv or a .comp file.")],
) -> None:
    """Show registers, spills, occupancy, loops and ISA of a shader under AMD's compiler.

    Takes the options of python -m webnn_vk.codegen inspect: --chip NAME, --set CONSTANT=NUMBER,
    --isa, -o FILE for the assembly, --json, and the options of shader compile. No GPU is needed.
    """
    _generate("inspect", [template, *context.args])


def _generate(command: str, arguments: list[str]) -> None:
    from .shaders import generate

    try:
        generate(command, arguments)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
