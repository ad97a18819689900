"""The command line, ``webnn-vk``: commands, options and their help. Each command is implemented in
another module, which is imported when the command runs."""

from __future__ import annotations

import errno
import io
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import webnn_vk

from . import ToolError, need
from .cli_options import Device, Input, Json, Model, Outputs, Seed, Shape, option
from .cli_options import numbers as _numbers
from .cli_options import options_of as _options
from .cli_shaders import shader_app

#: The exception for wrong arguments. Typer has its own copy of click, or uses the installed one.
WrongUse: type[Exception] = typer.BadParameter.__bases__[0]

#: The exit status after Ctrl-C, as in shells.
INTERRUPTED = 130
EXIT_STATUS = "Exit status: 0 done, 1 failed (one line on stderr), 2 wrong arguments."

app = typer.Typer(
    name="webnn-vk", help="The W3C WebNN API on Vulkan.", no_args_is_help=True,
    epilog=f"Example: webnn-vk run model.onnx --input photo.png — {EXIT_STATUS}",
    context_settings={"help_option_names": ["-h", "--help"]}, rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
cache_app = typer.Typer(
    help="The caches on disk: compiled shaders, saved graphs.", no_args_is_help=True,
    epilog="Example: webnn-vk cache verify", rich_markup_mode=None,
)
app.add_typer(cache_app, name="cache")
app.add_typer(shader_app, name="shader")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. The exit status is 0; 1 after an error (one line on stderr) or where a
    command found a problem; 2 for wrong arguments; 130 after Ctrl-C."""
    _open_streams()
    # Characters that stdout can't encode are written as ASCII escapes.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    # Warnings are printed as one line, without a place in the library's code.
    warnings.showwarning = lambda message, *_: print(message, file=sys.stderr)
    command = typer.main.get_command(app)
    given = None if arguments is None else list(arguments)
    try:
        status = command.main(given, prog_name="webnn-vk", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except WrongUse as error:
        return _wrong_use(error)
    except (ToolError, webnn_vk.DOMException) as error:
        print(f"webnn-vk: {' '.join(str(error).split())}", file=sys.stderr)
        if isinstance(error, ToolError) and error.lines:
            print(error.lines, file=sys.stderr)
        return 1
    except (KeyboardInterrupt, typer.Abort):
        status = INTERRUPTED
    except (BrokenPipeError, SystemExit) as end:
        # The reader (head, less) closed the pipe, which typer turns into an exit: no error.
        if not isinstance(end, BrokenPipeError) and not isinstance(
            end.__context__, BrokenPipeError
        ):
            raise
        _drop_output()
        return 0
    except OSError as error:
        where = error.filename or ("stdout" if _is_of_stdout(error) else "")
        what = error.strerror or error
        print(f"webnn-vk: {f'{where}: ' * bool(where)}{what}", file=sys.stderr)
        _drop_output()
        return 1
    if status == INTERRUPTED:  # typer returns it, too
        print("webnn-vk: interrupted", file=sys.stderr)
    return status if isinstance(status, int) else 0


def _open_streams() -> None:
    """Open standard streams that the caller closed (`>&-`). Otherwise the next file that is opened,
    perhaps by a driver, would become the standard output. Printing to a closed stdout still fails.
    """
    if os.name == "posix":
        for number in range(3):
            try:
                os.fstat(number)
            except OSError:
                os.open(os.devnull, os.O_RDONLY if number == 1 else os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")


def _is_of_stdout(error: OSError) -> bool:
    """Whether the error is that stdout is full or closed, and not a file of the command."""
    kinds = (errno.ENOSPC, errno.EFBIG, errno.EBADF, getattr(errno, "EDQUOT", None))
    if error.errno not in kinds:
        return False
    try:
        os.write(sys.stdout.fileno(), b"\n")  # an empty write would not fail
    except (AttributeError, OSError, ValueError):
        return True
    return False


def _drop_output() -> None:
    """Discard stdout's buffer, which Python would fail to flush when it exits."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (AttributeError, OSError, ValueError):  # no stdout, or one without a file
        pass


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
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


# -- commands on models ---------------------------------------------------------------------------
@app.command(epilog="Example: webnn-vk run model.onnx --input x=photo.png --mean 0.5 --std 0.5 "
                    "--output out.npz")
def run(
    model: Model, input: Input = None, device: Device = None, shape: Shape = None,
    outputs: Outputs = None,
    output: Annotated[Path | None, option(
        "--output", "-o", metavar="FILE", help="Write the outputs: .npz, or .npy for one.")] = None,
    mean: Annotated[str, typer.Option(
        "--mean", metavar="R,G,B", help="Subtracted from an image's pixels.")] = "0",
    std: Annotated[str, typer.Option(
        "--std", metavar="R,G,B", help="Pixels are then divided by it.")] = "1",
    top: Annotated[bool, typer.Option("--top", help="Show the largest elements of vector "
                                                    "outputs.")] = False,
    seed: Seed = 0, json: Json = False,
) -> None:
    """Run a model once and show its outputs."""
    from .inputs import ImageScale
    from .run import run as do

    scale = ImageScale(_numbers(mean, "--mean"), _numbers(std, "--std"))
    do(_options(model, device, json, shape, input, seed, outputs=outputs, scale=scale), output, top)


@app.command(epilog="Example: webnn-vk bench model.onnx --device vulkan --compare onnxruntime")
def bench(
    model: Model, device: Device = None,
    compare: Annotated[Literal["onnxruntime"] | None, option(
        "--compare", help="Also run it there, alternating, on the same inputs.")] = None,
    runs: Annotated[int | None, option(
        "--runs", min=1, help="Number of runs; else as many as fit.")] = None,
    seconds: Annotated[float, typer.Option(
        "--seconds", min=0.01, help="How long to measure each.")] = 3.0,
    input: Input = None, shape: Shape = None,
    outputs: Outputs = None, seed: Seed = 0, json: Json = False,
) -> None:
    """Measure a model: latency, its spread, throughput, memory."""
    from .bench import bench as do

    do(_options(model, device, json, shape, input, seed, outputs=outputs), runs, seconds, compare)


@app.command(epilog="Example: webnn-vk profile model.onnx --device vulkan --html report.html "
                    "--trace trace.json")
def profile(
    model: Model, device: Device = None,
    runs: Annotated[int, typer.Option("--runs", min=1, help="Number of runs to profile.")] = 5,
    every: Annotated[int | None, option(
        "--every", min=1, metavar="N", help="Time one run in N; else what is cheap.")] = None,
    html: Annotated[Path | None, option(
        "--html", metavar="FILE", help="Write everything as a page.")] = None,
    trace: Annotated[Path | None, option(
        "--trace", metavar="FILE", help="Write a trace for Perfetto or chrome://tracing.")] = None,
    input: Input = None, shape: Shape = None,
    outputs: Outputs = None, seed: Seed = 0, json: Json = False,
) -> None:
    """Show where time is spent: kernels, CPU steps, transfers, waits."""
    from .profiling import profile as do

    do(_options(model, device, json, shape, input, seed, outputs=outputs), runs, every, html, trace)


@app.command(epilog="Example: webnn-vk tune model.onnx --device vulkan")
def tune(
    model: Model, device: Device = None, shape: Shape = None,
    outputs: Outputs = None, input: Input = None,
    candidates: Annotated[int, typer.Option(
        "--candidates", min=2, help="Schedules to measure for each problem.")] = 4,
    rounds: Annotated[int, typer.Option(
        "--rounds", min=1, help="Times to measure each, in turns.")] = 5,
    again: Annotated[bool, typer.Option(
        "--again", help="Also measure what is already tuned.")] = False,
    json: Json = False,
) -> None:
    """Measure a model's kernels; later builds use the fastest ones."""
    from .tune import tune as do

    do(_options(model, device, json, shape, input, outputs=outputs), candidates, rounds, again)


@app.command(epilog="Example: webnn-vk check model.onnx --device vulkan. Exit status 1: the model "
                    "is not supported.")
def check(
    model: Model, device: Device = None, shape: Shape = None,
    outputs: Outputs = None, input: Input = None,
    json: Json = False,
) -> int:
    """Show where operators run and why, and which are not supported."""
    from .check import check as do

    return do(_options(model, device, json, shape, input, outputs=outputs))


@app.command(epilog="Example: webnn-vk graph model.onnx --device vulkan --svg kernels.svg "
                    "--html passes.html")
def graph(
    model: Model, device: Device = None,
    svg: Annotated[Path | None, option(
        "--svg", metavar="FILE", help="Draw the kernels; a browser opens groups.")] = None,
    html: Annotated[Path | None, option(
        "--html", metavar="FILE",
        help="Write a page: the graph before and after each pass.")] = None,
    after: Annotated[str | None, option(
        "--pass", metavar="NAME", help="With --svg: draw before and after this pass.")] = None,
    unfold: Annotated[bool, typer.Option(
        "--unfold", help="With --svg: no folded groups.")] = False,
    shape: Shape = None,
    outputs: Outputs = None, input: Input = None, json: Json = False,
) -> None:
    """Show the kernels of a model as a list or a picture."""
    for name, given in (("--pass", after), ("--unfold", unfold)):
        if given and svg is None:
            raise typer.BadParameter(f"{name} is for --svg FILE")
    from .graph import graph as do

    options = _options(model, device, json, shape, input, outputs=outputs)
    do(options, svg, html, after, fold=not unfold)


@app.command(epilog="Example: webnn-vk export model.onnx model.webnn --shape x=1,3,48,192")
def export(
    model: Model,
    target: Annotated[str, typer.Argument(
        metavar="FILE", show_default=False, help="NAME.onnx, NAME.webnn, or cache:KEY to save the "
                                                 "graph compiled.")],
    device: Device = None, shape: Shape = None,
    outputs: Outputs = None, input: Input = None,
    opset: Annotated[int | None, option("--opset", metavar="N", help="The ONNX opset.")] = None,
    json: Json = False,
) -> None:
    """Convert a model, or save it compiled."""
    from .export import export as do

    do(_options(model, device, json, shape, input, outputs=outputs), target, opset)


@app.command(epilog='Example: webnn-vk generate SmolLM2-135M-Instruct "Why is the sky blue?"')
def generate(
    model: Annotated[str, typer.Argument(
        metavar="MODEL", show_default=False, help="A Hugging Face folder or a GGUF file.")],
    prompt: Annotated[str, typer.Argument(
        metavar="PROMPT", show_default=False, help="The text to continue, or a message.")],
    max_new_tokens: Annotated[int, option(
        "--max-new-tokens", min=1, metavar="N", help="The most tokens to write; else 200.")] = 200,
    chat: Annotated[bool | None, option(
        "--chat/--no-chat", help="Whether PROMPT is a message.")] = None,
    temperature: Annotated[float | None, option(
        "--temperature", metavar="X", help="0: the most probable token.")] = None,
    top_k: Annotated[int | None, option(
        "--top-k", metavar="K", help="Only the K most probable tokens.")] = None,
    top_p: Annotated[float | None, option(
        "--top-p", metavar="P", help="Only the most probable, up to this sum.")] = None,
    seed: Annotated[int | None, option("--seed", metavar="N", help="Of random choices.")] = None,
    stop: Annotated[list[str] | None, option(
        "--stop", metavar="TEXT", help="A text that ends the result.")] = None,
    dtype: Annotated[Literal["float32", "float16", "int8", "int4"] | None, option(
        "--dtype", metavar="TYPE", help="Of weights: float32, float16, int8, int4.")] = None,
    activations: Annotated[Literal["float32", "float16"] | None, option(
        "--activations", metavar="TYPE", help="Of the cache and of products' inputs.")] = None,
    context_length: Annotated[int | None, option(
        "--context-length", min=1, metavar="N", help="The most tokens at all.")] = None,
    device: Device = None, json: Json = False,
) -> None:
    """Write the text that follows a prompt, by a decoder model."""
    from .generate import generate as do

    do(model, prompt, max_new_tokens, chat=chat, device=device, dtype=dtype,
       activations=activations, context_length=context_length, as_json=json, sampling={
           "temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed,
           "stop": stop or (),
       })


@app.command(epilog="Example: webnn-vk batch model.onnx photos/ results/ --workers 4")
def batch(
    model: Annotated[str, typer.Argument(
        metavar="MODEL", show_default=False, help="A .onnx file, on every node.")],
    source: Annotated[Path, typer.Argument(
        metavar="IN", exists=True, show_default=False,
        help="A .parquet or .csv file, or a folder.")],
    out: Annotated[Path, typer.Argument(
        metavar="OUT", file_okay=False, show_default=False,
        help="Folder of results; keeps what it has.")],
    workers: Annotated[int, typer.Option("--workers", min=1, help="Actors of Ray.")] = 1,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Rows at a time.")] = 64,
    column: Annotated[list[str] | None, option(
        "--column", metavar="INPUT=COLUMN,…", help="An input's column or columns.",
    )] = None,
    outputs: Outputs = None,
    on_error: Annotated[Literal["raise", "skip"], typer.Option(
        "--on-error", help="At a row that can't be taken.")] = "raise",
    gpus: Annotated[float | None, option(
        "--gpus", min=0, help="Of each worker; else 1 if enough.")] = None,
    mean: Annotated[str, typer.Option("--mean", metavar="R,G,B", help="As for run.")] = "0",
    std: Annotated[str, typer.Option("--std", metavar="R,G,B", help="As for run.")] = "1",
    device: Device = None, json: Json = False,
) -> None:
    """Run a model over many rows or images, by workers of Ray."""
    need("batch needs", "onnx", "ray")
    from .batch import Job
    from .batch import batch as do
    from .inputs import ImageScale
    from .models import kind_of

    if kind_of(model) != "onnx":
        raise typer.BadParameter("batch is for ONNX models")
    columns = {}
    for text in column or ():
        name, equals, names = text.partition("=")
        if not (name and equals and all(names.split(","))):
            raise typer.BadParameter(f"--column: {text!r} is not INPUT=COLUMN")
        columns[name] = tuple(names.split(","))
    wanted = tuple(name for text in outputs or () for name in text.split(",") if name)
    scale = ImageScale(_numbers(mean, "--mean"), _numbers(std, "--std"))
    job = Job(str(Path(model).absolute()), out.absolute(), columns, wanted or None, batch_size,
              scale, device, on_error == "skip")
    do(job, source.absolute(), workers, gpus, json)


# -- about this machine ---------------------------------------------------------------------------
@app.command(epilog="Example: webnn-vk info --device 0")
def info(device: Device = None, json: Json = False) -> None:
    """Show devices with features, limits and quirks, and the caches."""
    from .info import info as do

    do(device, json)


def _show(as_json: bool, data: Callable[[], Any], text: Callable[[], str]) -> None:
    """Print the data as JSON, or the text."""
    from .output import emit

    if as_json:
        emit(data())
    else:
        print(text())


@app.command(epilog="Example: webnn-vk devices --json")
def devices(json: Json = False) -> None:
    """List the devices and the CPU; a star marks the default."""
    from .devices import listing, table

    _show(json, listing, table)


@app.command(epilog="Example: webnn-vk doctor. Exit status 1: something is wrong.")
def doctor(json: Json = False) -> int:
    """Show what contexts run on here and why, and what would be faster."""
    from .doctor import report

    return report(json)


@app.command(epilog="Example: webnn-vk operators")
def operators(json: Json = False) -> None:
    """List operators and their data types as a Markdown table."""
    from .operators import listing, table

    _show(json, listing, table)


@cache_app.command("stat", epilog="Example: webnn-vk cache stat --json")
def cache_stat(json: Json = False) -> None:
    """Show what is cached, and where."""
    from .caches import show

    show(json)


@cache_app.command("verify", epilog="Example: webnn-vk cache verify. Exit status 1: something is "
                                    "damaged.")
def cache_verify(json: Json = False) -> int:
    """Read all cached files and list damaged ones."""
    from .caches import verify

    return verify(json)


@cache_app.command("clear", epilog="Example: webnn-vk cache clear --only shaders")
def cache_clear(
    only: Annotated[Literal["shaders", "graphs", "tuned"] | None, option(
        "--only", help="Remove only these.")] = None,
    json: Json = False,
) -> None:
    """Remove the shaders, the saved graphs and the tuned schedules."""
    from .caches import clear

    clear(only, json)


# -- demo -----------------------------------------------------------------------------------------
@app.command(epilog='Example: webnn-vk demo "What helps against a headache?" — or: webnn-vk demo '
                    'ocr page.png — or: webnn-vk demo generate "A graph is"')
def demo(
    question: Annotated[str | None, typer.Argument(
        metavar="[QUESTION|ocr|generate]", show_default=False,
        help="Text to search the sentences for; ocr reads an image, generate writes text.")] = None,
    second: Annotated[str | None, typer.Argument(
        metavar="[IMAGE|PROMPT]", show_default=False,
        help="After ocr: the image to read; after generate: the text to continue.")] = None,
    output: Annotated[Path | None, option(
        "--output", metavar="PNG",
        help="With ocr: picture of the text that was read [IMAGE-text.png].")] = None,
    file: Annotated[Path | None, option(
        "--file", help="Sentences to search, one per line (UTF-8).")] = None,
    model: Annotated[Path | None, option(
        "--model", metavar="DIR",
        help="Another BERT encoder: config.json, model.safetensors, tokenizer.json.")] = None,
    top: Annotated[int | None, option(
        "--top", min=1, metavar="N", help="Number of matches [5].")] = None,
    device: Device = None, json: Json = False,
) -> None:
    """Search sentences by meaning, read the text in an image, or write text."""
    if question in ("ocr", "generate"):
        for name, value in (("file", file), ("model", model), ("top", top)):
            if value is not None:
                raise typer.BadParameter(f"--{name} is for the sentences, not for {question}")
    if question == "ocr":
        from . import ocr_demo

        ocr_demo.run(None if second is None else Path(second), output, device, json)
        return
    if output is not None or (second is not None and question != "generate"):
        what = f"the second argument, {second}," if output is None else "--output"
        raise typer.BadParameter(f"{what} is only for ocr; quote a question of several words")
    if question == "generate":
        from .generate import demo as generate_demo

        generate_demo(second, device, json)
        return
    from . import demo as search

    asked = search.QUESTION if question is None else question
    search.run(asked, file, model, device, top or 5, json)
