"""The command line: `webnn-vk demo | devices | operators`."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import webnn_vk

from . import ToolError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is 0, or 1 after an error said in one line on stderr."""
    parser = argparse.ArgumentParser(
        prog="webnn-vk", description="The W3C WebNN API on any Vulkan GPU."
    )
    parser.add_argument("--version", action="version", version=f"webnn_vk {webnn_vk.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")

    demo = commands.add_parser("demo", help="semantic search with a trained sentence encoder")
    demo.add_argument("question", nargs="?", help="what to look for in the sentences")
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
        "default: WEBNN_VK_DEVICE, else any Vulkan device, else the CPU",
    )
    demo.add_argument("--top", type=int, default=5, metavar="N", help="matches shown (default 5)")
    demo.set_defaults(run=_demo)

    commands.add_parser(
        "devices", help="the Vulkan devices found, and the CPU device"
    ).set_defaults(run=_devices)
    commands.add_parser(
        "operators", help="which operators and data types are supported, as a Markdown table"
    ).set_defaults(run=_operators)

    options = parser.parse_args(arguments)
    # What changes where work runs is said in one line, without the place in our code.
    warnings.showwarning = lambda message, *_: print(message, file=sys.stderr)
    try:
        options.run(options)
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
    return 0


def _demo(options: argparse.Namespace) -> None:
    from . import demo

    demo.run(
        demo.QUESTION if options.question is None else options.question,
        options.file,
        options.model,
        options.device,
        options.top,
    )


def _devices(options: argparse.Namespace) -> None:
    from .devices import table

    print(table())


def _operators(options: argparse.Namespace) -> None:
    from .operators import table

    print(table())
