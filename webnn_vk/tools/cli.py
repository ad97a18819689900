"""The command line, ``webnn-vk``: options and their help. What a command does is in a module of its
own, loaded when it runs."""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import webnn_vk

from . import ToolError

#: What wrong arguments are: typer brings its own copy of click, or uses the installed one.
WrongUse: type[Exception] = typer.BadParameter.__bases__[0]

EXIT_STATUS = "Exit status: 0 done, 1 failed (one line on stderr), 2 wrong arguments."

app = typer.Typer(
    name="webnn-vk", help="The W3C WebNN API on any Vulkan GPU.", no_args_is_help=True,
    epilog=f"Example: webnn-vk run model.onnx --input photo.png — {EXIT_STATUS}",
    context_settings={"help_option_names": ["-h", "--help"]}, rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
cache_app = typer.Typer(
    help="What is kept between processes: compiled shaders, saved graphs.", no_args_is_help=True,
    epilog="Example: webnn-vk cache verify", rich_markup_mode=None,
)
app.add_typer(cache_app, name="cache")
shader_app = typer.Typer(
    help="Kernels: templates, those of a model, and your own.", no_args_is_help=True,
    epilog="Example: webnn-vk shader list", rich_markup_mode=None,
)
app.add_typer(shader_app, name="shader")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is 0, or 1 after an error said in one line on stderr (and 1
    from commands that found something wrong), 2 for wrong arguments."""
    # Where stdout can't write a character, it is written in ASCII.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    # What changes where work runs is said in one line, without the place in our code.
    warnings.showwarning = lambda message, *_: print(message, file=sys.stderr)
    command = typer.main.get_command(app)
    given = None if arguments is None else list(arguments)
    try:
        status = command.main(given, prog_name="webnn-vk", standalone_mode=False)
    except WrongUse as error:
        return _wrong_use(error)
    except (ToolError, webnn_vk.DOMException) as error:
        print(f"webnn-vk: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, typer.Abort):
        print("webnn-vk: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader (head, less) went away: no fault, but Python would complain when it flushes.
        sys.stderr.close()
        return 0
    return status if isinstance(status, int) else 0


def _wrong_use(error: Any) -> int:
    context = error.ctx
    if type(error).__name__ == "NoArgsIsHelpError":
        print(context.get_help(), file=sys.stderr)
        return 2
    path = "webnn-vk" if context is None else context.command_path
    message = " ".join(error.format_message().split())
    print(f"{path}: error: {message} (see {path} --help)", file=sys.stderr)
    return 2


def _version(wanted: bool) -> None:
    if wanted:
        print(f"webnn_vk {webnn_vk.__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say it, and end.")
    ] = False,
) -> None:
    pass


# -- completion -----------------------------------------------------------------------------------
def _models(incomplete: str) -> list[str]:
    """Files that can be a MODEL, folders, and saved graphs."""
    if incomplete.startswith("cache:"):
        from .caches import saved_graphs

        return [key for key in (f"cache:{key}" for key in saved_graphs()) if
                key.startswith(incomplete)]
    folder, start = os.path.split(incomplete)
    try:
        entries = list(os.scandir(folder or "."))
    except OSError:
        return []
    return sorted(
        os.path.join(folder, entry.name) + "/" * entry.is_dir() for entry in entries
        if entry.name.startswith(start)
        and (entry.is_dir() or entry.name.endswith((".onnx", ".webnn")))
    ) + ["cache:"] * "cache:".startswith(incomplete)


def _devices(incomplete: str) -> list[str]:
    names = [info.name for info in webnn_vk.devices() if info.is_vulkan]
    return [name for name in ("cpu", "vulkan", *names) if name.startswith(incomplete)]


# -- options that commands share ------------------------------------------------------------------
def _shape_list(given: list[str] | None) -> list[str]:
    from .models import parse_shapes

    try:
        parse_shapes(given or [])
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return given or []


Model = Annotated[str, typer.Argument(
    metavar="MODEL", autocompletion=_models, show_default=False,
    help="A .onnx or .webnn file, or cache:KEY, a saved graph.")]
Device = Annotated[str | None, typer.Option(
    "--device", metavar="NAME", autocompletion=_devices, show_default=False,
    help="Index or part of its name, vulkan (any) or cpu.")]
Json = Annotated[bool, typer.Option("--json", help="JSON alone on stdout.")]
Shape = Annotated[list[str] | None, typer.Option(
    "--shape", metavar="NAME=1,3,48,192", callback=_shape_list, show_default=False,
    help="An input's shape; else 1 for its batch, 224 for others.")]
Input = Annotated[list[str] | None, typer.Option(
    "--input", "-i", metavar="[NAME=]WHAT", show_default=False,
    help="random, numbers, FILE.npy, FILE.npz or an image.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of random inputs.")]


def _options(
    model: str, device: str | None, as_json: bool, shape: list[str] | None,
    inputs: list[str] | None, seed: int = 0, **more: Any,
) -> Any:
    from .models import kind_of, parse_shapes
    from .running import Options

    kind_of(model)  # before a device is opened for it
    return Options(
        model, device, parse_shapes(shape or []), inputs or [], seed, json=as_json, **more
    )


def _numbers(text: str, option: str) -> tuple[float, ...]:
    try:
        return tuple(float(number) for number in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{option}: {text!r} is not a number, nor several with commas") \
            from None


# -- commands on models ---------------------------------------------------------------------------
@app.command(epilog="Example: webnn-vk run model.onnx --input x=photo.png --mean 0.5 --std 0.5 "
                    "--output out.npz")
def run(
    model: Model, input: Input = None, device: Device = None, shape: Shape = None,
    output: Annotated[Path | None, typer.Option(
        "--output", "-o", metavar="FILE", show_default=False,
        help="Write the outputs: .npz, or .npy for one.")] = None,
    mean: Annotated[str, typer.Option(
        "--mean", metavar="R,G,B", help="Taken from an image's pixels, which are 0 to 1.")] = "0",
    std: Annotated[str, typer.Option(
        "--std", metavar="R,G,B", help="What they are then divided by.")] = "1",
    top: Annotated[bool, typer.Option("--top", help="Show the largest of outputs that are "
                                                    "vectors.")] = False,
    seed: Seed = 0, json: Json = False,
) -> None:
    """Run a model once and show what comes out."""
    from .inputs import ImageScale
    from .run import run as do

    scale = ImageScale(_numbers(mean, "--mean"), _numbers(std, "--std"))
    do(_options(model, device, json, shape, input, seed, scale=scale), output, top)


@app.command(epilog="Example: webnn-vk bench model.onnx --device vulkan --compare onnxruntime")
def bench(
    model: Model, device: Device = None,
    compare: Annotated[Literal["onnxruntime"] | None, typer.Option(
        "--compare", show_default=False, help="Run it there too, in turn, on the same "
                                              "inputs.")] = None,
    runs: Annotated[int | None, typer.Option(
        "--runs", min=1, show_default=False, help="How many; else as many as fit.")] = None,
    seconds: Annotated[float, typer.Option(
        "--seconds", min=0.01, help="How long to measure each.")] = 3.0,
    input: Input = None, shape: Shape = None, seed: Seed = 0, json: Json = False,
) -> None:
    """How fast a model is: latency, its spread, throughput, memory."""
    from .bench import bench as do

    do(_options(model, device, json, shape, input, seed), runs, seconds, compare)


@app.command(epilog="Example: webnn-vk profile model.onnx --device vulkan --html report.html "
                    "--trace trace.json")
def profile(
    model: Model, device: Device = None,
    runs: Annotated[int, typer.Option("--runs", min=1, help="How many to look at.")] = 5,
    every: Annotated[int, typer.Option(
        "--every", min=1, metavar="N", help="Time the kernels of one run in N: costs less.")] = 1,
    html: Annotated[Path | None, typer.Option(
        "--html", metavar="FILE", show_default=False, help="Write a page with all of it.")] = None,
    trace: Annotated[Path | None, typer.Option(
        "--trace", metavar="FILE", show_default=False,
        help="Write a trace for Perfetto or chrome://tracing.")] = None,
    input: Input = None, shape: Shape = None, seed: Seed = 0, json: Json = False,
) -> None:
    """Where the time goes: kernels, CPU steps, transfers, waits."""
    from .profiling import profile as do

    do(_options(model, device, json, shape, input, seed), runs, every, html, trace)


@app.command(epilog="Example: webnn-vk tune model.onnx --device vulkan")
def tune(
    model: Model, device: Device = None, shape: Shape = None, input: Input = None,
    candidates: Annotated[int, typer.Option(
        "--candidates", min=2, help="Schedules to measure for each problem.")] = 4,
    rounds: Annotated[int, typer.Option(
        "--rounds", min=1, help="How often to measure each, in turns.")] = 5,
    again: Annotated[bool, typer.Option(
        "--again", help="Measure too what is kept from before.")] = False,
    json: Json = False,
) -> None:
    """Measure the kernels of a model; later builds use what is fastest."""
    from .tune import tune as do

    do(_options(model, device, json, shape, input), candidates, rounds, again)


@app.command(epilog="Example: webnn-vk check model.onnx --device vulkan. Exit status 1: the model "
                    "can't be taken.")
def check(
    model: Model, device: Device = None, shape: Shape = None, input: Input = None,
    json: Json = False,
) -> int:
    """Where operators run and why; what is not supported."""
    from .check import check as do

    return do(_options(model, device, json, shape, input))


@app.command(epilog="Example: webnn-vk graph model.onnx --device vulkan --svg kernels.svg "
                    "--html passes.html")
def graph(
    model: Model, device: Device = None,
    svg: Annotated[Path | None, typer.Option(
        "--svg", metavar="FILE", show_default=False,
        help="Draw the kernels; a browser opens groups.")] = None,
    html: Annotated[Path | None, typer.Option(
        "--html", metavar="FILE", show_default=False,
        help="Write a page: the graph before and after each pass.")] = None,
    after: Annotated[str | None, typer.Option(
        "--pass", metavar="NAME", show_default=False,
        help="With --svg: draw before and after this pass.")] = None,
    unfold: Annotated[bool, typer.Option(
        "--unfold", help="With --svg: no groups, all of it open.")] = False,
    shape: Shape = None, input: Input = None, json: Json = False,
) -> None:
    """The kernels that a model's operators become, as list or picture."""
    for option, given in (("--pass", after), ("--unfold", unfold)):
        if given and svg is None:
            raise typer.BadParameter(f"{option} is for --svg FILE")
    from .graph import graph as do

    do(_options(model, device, json, shape, input), svg, html, after, fold=not unfold)


@app.command(epilog="Example: webnn-vk export model.onnx model.webnn --shape x=1,3,48,192")
def export(
    model: Model,
    target: Annotated[str, typer.Argument(
        metavar="FILE", show_default=False, help="NAME.onnx, NAME.webnn, or cache:KEY to save the "
                                                 "graph compiled.")],
    device: Device = None, shape: Shape = None, input: Input = None,
    opset: Annotated[int | None, typer.Option(
        "--opset", metavar="N", show_default=False, help="Of the ONNX file.")] = None,
    json: Json = False,
) -> None:
    """Write a model in another form, as compiled."""
    from .export import export as do

    do(_options(model, device, json, shape, input), target, opset)


# -- kernels --------------------------------------------------------------------------------------
@shader_app.command("list", epilog="Example: webnn-vk shader list model.onnx --device vulkan")
def shader_list(
    model: Annotated[str | None, typer.Argument(
        metavar="[MODEL]", autocompletion=_models, show_default=False,
        help="A model: list its kernels, not the templates.")] = None,
    device: Device = None, shape: Shape = None, input: Input = None, json: Json = False,
) -> None:
    """The templates, or the kernels of a model with their numbers."""
    from .shaders import listing

    listing(None if model is None else _options(model, device, json, shape, input), json)


@shader_app.command("show", epilog="Example: webnn-vk shader show model.onnx --step 3 --form spirv "
                                   "--device vulkan")
def shader_show(
    model: Model,
    step: Annotated[int, typer.Option(
        "--step", min=0, help="Which kernel: see webnn-vk shader list MODEL.")] = 0,
    form: Annotated[Literal["spec", "glsl", "spirv"], typer.Option(
        "--form", help="How it is specialised, its GLSL, or its SPIR-V as text.")] = "spec",
    device: Device = None, shape: Shape = None, input: Input = None, json: Json = False,
) -> None:
    """A kernel of a model: specialisation, GLSL or SPIR-V."""
    from .shaders import show

    show(_options(model, device, json, shape, input), step, form)


@shader_app.command("describe", epilog="Example: webnn-vk shader describe scatter_clear")
def shader_describe(
    template: Annotated[str, typer.Argument(metavar="TEMPLATE", show_default=False,
                                            help="Its name: see webnn-vk shader list.")],
) -> None:
    """What a template wants, and a command that compiles it."""
    from .shaders import describe

    describe(template)


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
    --constant NAME, --option NAME=VALUE, --feature NAME, --template-dir DIR, -o FILE.
    """
    from .shaders import generate

    try:
        generate("compile", [template, *context.args])
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


# -- about this machine ---------------------------------------------------------------------------
@app.command(epilog="Example: webnn-vk info --device 0")
def info(device: Device = None, json: Json = False) -> None:
    """Devices with their features, limits and quirks, and the caches."""
    from .info import info as do

    do(device, json)


@app.command(epilog="Example: webnn-vk devices --json")
def devices(json: Json = False) -> None:
    """The devices found, the CPU too; a star marks the default."""
    from .devices import listing, table
    from .output import emit

    if json:
        emit(listing())
    else:
        print(table())


@app.command(epilog="Example: webnn-vk doctor. Exit status 1: something is wrong.")
def doctor(json: Json = False) -> int:
    """What contexts run on here and why, and what would be faster."""
    from .doctor import report

    return report(json)


@app.command(epilog="Example: webnn-vk operators")
def operators(json: Json = False) -> None:
    """Operators and their data types, as a Markdown table."""
    from .operators import listing, table
    from .output import emit

    if json:
        emit(listing())
    else:
        print(table())


@cache_app.command("stat", epilog="Example: webnn-vk cache stat --json")
def cache_stat(json: Json = False) -> None:
    """What is cached, and where."""
    from .caches import show

    show(json)


@cache_app.command("verify", epilog="Example: webnn-vk cache verify. Exit status 1: something is "
                                    "damaged.")
def cache_verify(json: Json = False) -> int:
    """Read all of it, and name what is damaged."""
    from .caches import verify

    return verify(json)


@cache_app.command("clear", epilog="Example: webnn-vk cache clear --only shaders")
def cache_clear(
    only: Annotated[Literal["shaders", "graphs", "tuned"] | None, typer.Option(
        "--only", show_default=False, help="Leave the others.")] = None,
    json: Json = False,
) -> None:
    """Remove the shaders, the saved graphs and the tuned schedules."""
    from .caches import clear

    clear(only, json)


# -- demo -----------------------------------------------------------------------------------------
@app.command(epilog='Example: webnn-vk demo "What helps against a headache?" — or: webnn-vk demo '
                    'ocr page.png')
def demo(
    question: Annotated[str | None, typer.Argument(
        metavar="[QUESTION|ocr]", show_default=False,
        help="What to look for in the sentences; ocr reads an image.")] = None,
    image: Annotated[Path | None, typer.Argument(
        metavar="[IMAGE]", show_default=False, help="After ocr: the image to read.")] = None,
    output: Annotated[Path | None, typer.Option(
        "--output", metavar="PNG", show_default=False,
        help="With ocr: the picture of what was read [IMAGE-text.png].")] = None,
    file: Annotated[Path | None, typer.Option(
        "--file", show_default=False, help="Sentences to search, one per line (UTF-8).")] = None,
    model: Annotated[Path | None, typer.Option(
        "--model", metavar="DIR", show_default=False,
        help="Another BERT encoder: config.json, model.safetensors, tokenizer.json.")] = None,
    top: Annotated[int | None, typer.Option(
        "--top", min=1, metavar="N", show_default=False, help="Matches shown [5].")] = None,
    device: Device = None,
) -> None:
    """Semantic search, or reading the text in an image."""
    if question == "ocr":
        for name, value in (("file", file), ("model", model), ("top", top)):
            if value is not None:
                raise typer.BadParameter(f"--{name} is for the sentences, not for ocr")
        from . import ocr_demo

        ocr_demo.run(image, output, device)
        return
    if image is not None or output is not None:
        what = "--output" if image is None else f"the second argument, {image},"
        raise typer.BadParameter(f"{what} is for ocr alone; a question of several words is quoted")
    from . import demo as search

    search.run(search.QUESTION if question is None else question, file, model, device, top or 5)
