"""The command line: `webnn-vk demo | devices | doctor | operators`."""

from __future__ import annotations

import argparse
import io
import json
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import webnn_vk

from . import ToolError

#: Matches that the sentence search shows.
_TOP = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is 0, or 1 after an error said in one line on stderr (and 1
    from a doctor who found something wrong), 2 for wrong arguments."""
    parser = argparse.ArgumentParser(
        prog="webnn-vk", description="The W3C WebNN API on any Vulkan GPU."
    )
    parser.add_argument("--version", action="version", version=f"webnn_vk {webnn_vk.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")

    demo = commands.add_parser(
        "demo",
        help="semantic search with a trained sentence encoder; demo ocr [IMAGE]: the text in an "
        "image, read",
    )
    demo.add_argument(
        "question",
        nargs="?",
        help="what to look for in the sentences; the word ocr reads an image instead",
    )
    demo.add_argument("image", nargs="?", type=Path, help="after ocr: the image to read")
    demo.add_argument(
        "--output",
        type=Path,
        metavar="PNG",
        help="with ocr: where the picture of what was read goes (default: IMAGE-text.png here)",
    )
    demo.add_argument("--file", type=Path, help="sentences to search, one per line (UTF-8)")
    demo.add_argument(
        "--model",
        type=Path,
        metavar="DIR",
        help="folder of another BERT sentence encoder: config.json, model.safetensors, "
        "tokenizer.json",
    )
    demo.add_argument(
        "--device",
        help="index or part of the name of a Vulkan device, vulkan (any, a GPU first) or cpu; "
        "default: what ml.create_context() takes (see webnn-vk devices)",
    )
    demo.add_argument(
        "--top", type=_positive, metavar="N", help=f"matches shown (default {_TOP})"
    )
    demo.set_defaults(run=_demo, error=demo.error)

    devices = commands.add_parser(
        "devices", help="the Vulkan devices found, and the CPU device; a star marks the default"
    )
    devices.set_defaults(run=_devices)
    doctor = commands.add_parser(
        "doctor",
        help="what contexts run on here and why, and what would make them faster; exit status 1 "
        "when something is wrong",
    )
    doctor.set_defaults(run=_doctor)
    for command in (devices, doctor):
        command.add_argument("--json", action="store_true", help="as JSON, alone on stdout")
    commands.add_parser(
        "operators", help="which operators and data types are supported, as a Markdown table"
    ).set_defaults(run=_operators)

    options = parser.parse_args(arguments)
    # What changes where work runs is said in one line, without the place in our code.
    # Where stdout can't write a character, it is written in ASCII.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    warnings.showwarning = lambda message, *_: print(message, file=sys.stderr)
    try:
        status = options.run(options)
    except (ToolError, webnn_vk.DOMException) as error:
        print(f"webnn-vk: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("webnn-vk: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader (head, less) went away: no fault, but Python would complain when it flushes.
        sys.stderr.close()
        return 0
    return status or 0


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number}: at least 1 is needed")
    return number


_positive.__name__ = "whole number"  # argparse says "invalid … value"


def _demo(options: argparse.Namespace) -> None:
    if options.question == "ocr":
        for name in ("file", "model", "top"):
            if getattr(options, name) is not None:
                options.error(f"--{name} is for the sentences, not for ocr")
        from . import ocr_demo

        ocr_demo.run(options.image, options.output, options.device)
        return
    if options.image is not None or options.output is not None:
        what = "--output" if options.image is None else f"the second argument, {options.image},"
        options.error(f"{what} is for ocr alone; a question of several words is quoted")
    from . import demo

    demo.run(
        demo.QUESTION if options.question is None else options.question,
        options.file,
        options.model,
        options.device,
        options.top or _TOP,
    )


def _devices(options: argparse.Namespace) -> None:
    from .devices import listing, table

    if options.json:
        print(json.dumps(listing(), indent=2))
    else:
        print(table())


def _doctor(options: argparse.Namespace) -> int:
    from .doctor import report

    return report(options.json)


def _operators(options: argparse.Namespace) -> None:
    from .operators import table

    print(table())
