"""`python -m bench [WHAT]`: time and memory that the library takes."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from webnn_vk.codegen.isa import IsaError
from webnn_vk.tools import ToolError
from webnn_vk.tools.devices import vulkan_problem

#: The benchmarks, with their help.
WHAT = {
    "models": "MiniLM and MobileNetV2 on Vulkan and on the CPU device, side by side (default)",
    "startup": "a new process, from import to the first MiniLM embedding",
    "cold": "a new process, from import to a model's first result: empty caches, again, loaded",
    "interop": "ways to a tensor's contents",
    "dispatch": "dispatches per second of one addition, beside wgpu-py",
    "calls": "what a call costs its caller, on the null driver and on the device",
    "drivers": "dispatches, building and memory of each driver",
    "memory": "resident memory before, while and after a large model is built",
    "cpu": "the CPU device beside ONNX Runtime itself",
    "isa": "what AMD's compiler makes of the kernels of models, without a GPU",
    "chips": "our kernels under the compilers of six makers of GPUs, without a GPU",
    "estimates": "chosen schedules beside the others, in cycles as drivers of GPUs estimate them",
    "peers": "ours beside other libraries on software Vulkan, by a harness that is not in this "
    "repository",
    "recurrent": "LSTMs and GRUs by length, width and batch, beside the CPU device",
    "generation": "a token beside reading the weights, of 32, 8 and 4 bits; llama.cpp and ncnn",
    "serving": "the chat service of examples/ with many clients at once",
    "scaling": "time against sequence length, image size and batch, and where it jumps",
}
#: Options that only some benchmarks read.
READ_BY = {
    "json": ("chips", "cold", "drivers", "estimates", "isa", "peers", "scaling"),
    "megabytes": ("generation", "memory", "peers", "serving"), "clients": ("serving",),
    "llama": ("generation", "peers"),
    "model": ("cold", "recurrent"), "chip": ("chips", "estimates", "isa"),
    "graph": ("chips", "estimates", "isa"),
    "isa": ("isa",), "captured": ("isa",),
    "chart": ("peers", "scaling"), "limit": ("peers", "scaling"), "harness": ("peers",),
    "peer": ("peers",), "workload": ("peers",), "seconds": ("peers", "serving"), "wait": ("peers",),
    "sweep": ("scaling",), "size": ("scaling",), "by": ("scaling",),
}


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench", formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="python -m bench [WHAT] [OPTION …]", description=f"{__doc__}\n\n" + "\n".join(
            f"    {name:<9}  {text}" for name, text in WHAT.items()
        ),
        epilog="On a machine with an NVIDIA GPU: python bench/gpu_session.py --out FILE.json",
    )
    parser.add_argument("what", nargs="?", default="models", choices=WHAT, metavar="WHAT",
                        help="one of the above")
    parser.add_argument("--device", help="as in `webnn-vk demo`; default: any Vulkan device")
    parser.add_argument("--runs", type=_count, help="runs per figure (default: 5 to 15)")
    parser.add_argument(
        "--megabytes", type=_count, help="of weights (generation, memory, peers, serving)"
    )
    parser.add_argument("--llama", type=Path, metavar="FOLDER", help="generation, peers: a folder "
                        "with node-llama-cpp, which runs the same model (bench/llama_cpp.py)")
    parser.add_argument("--clients", type=_count, default=50, help="of serving, at once")
    parser.add_argument(
        "--json", type=Path,
        help="a file to write everything to (chips, cold, drivers, estimates, isa, peers, "
        "scaling)",
    )
    parser.add_argument("--model", action="append", help="a model of cold, or how cases of "
                        "recurrent begin; default: all")
    of_isa = parser.add_argument_group("isa, chips and estimates")
    of_isa.add_argument(
        "--chip", action="append", help="isa: RADV's name of a chip, default NAVI21; chips, "
        "estimates: one of webnn_vk.codegen.isa.chips, default all, or three; repeatable"
    )
    of_isa.add_argument(
        "--graph", action="append",
        help="a model of bench.isa.graphs, or pack: every unfused kernel; default: the models",
    )
    of_isa.add_argument("--isa", type=Path, help="a folder to write the assembly to")
    of_isa.add_argument(
        "--captured", type=Path, metavar="FOLDER",
        help="captured kernels of other libraries, PEER/WORKLOAD: a bound on the time of each "
        "workload, ours beside theirs, instead of a table of kernels",
    )
    of_peers = parser.add_argument_group("peers, scaling and serving")
    of_peers.add_argument(
        "--chart", type=Path, help="a file to draw a chart into (.svg, .png, .pdf; matplotlib)"
    )
    of_peers.add_argument(
        "--limit", type=float, help="seconds after which one figure is given up; default: 300"
    )
    of_peers.add_argument("--harness", type=Path, help="the folder of bench_peers.py; default: "
                          "../shared/peers beside the checkout")
    of_peers.add_argument("--peer", action="append", help="who takes part; default: all set up")
    of_peers.add_argument("--workload", action="append", help="default: the eleven")
    of_peers.add_argument("--seconds", type=float, default=2.0, help="of runs for each figure; "
                          "of serving")
    of_peers.add_argument("--wait", type=float, default=30.0, help="seconds at most that each "
                          "figure waits for a quiet machine; default: 30")
    of_peers.add_argument("--sweep", action="append", choices=("tokens", "image", "batch"),
                          help="of scaling; default: all three")
    of_peers.add_argument("--size", action="append", type=_count, help="of the sweeps, instead of "
                          "their own; repeatable")
    of_peers.add_argument("--by", choices=("clock", "processor"), default="clock",
                          help="what cliffs are judged by; processor on a busy machine")
    return parser


def _options(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The options. Values that are impossible or would be ignored are refused."""
    options = parser.parse_args()
    for name, readers in READ_BY.items():
        if getattr(options, name) != parser.get_default(name) and options.what not in readers:
            parser.error(f"--{name} is for {', '.join(readers)}, not for {options.what}")
    for name in ("json", "chart"):
        path = getattr(options, name)
        if path is not None and not path.parent.is_dir():
            parser.error(f"--{name} {path}: there is no folder {path.parent}")
    return options


def main() -> int:
    parser = _parser()
    options = _options(parser)
    if options.device is None and not os.environ.get("WEBNN_VK_DEVICE") and not vulkan_problem():
        options.device = "vulkan"  # contexts would take the CPU device before software Vulkan
    try:
        if options.what == "startup":
            from . import startup

            startup.main(options.device, options.runs or 5)
        elif options.what == "cold":
            from . import cold

            for name in set(options.model or ()) - cold.MODELS.keys():
                parser.error(f"no model is called {name}; there are {'; '.join(cold.MODELS)}")
            cold.main(options.device, options.model, options.json)
        elif options.what == "interop":
            from . import interop

            interop.main(options.device, options.runs or 15)
        elif options.what == "dispatch":
            from . import dispatch

            dispatch.main(options.device, options.runs or 5)
        elif options.what == "calls":
            from . import calls

            calls.main(options.device, options.runs or 15)
        elif options.what == "generation":
            from . import generation

            generation.main(
                options.device, options.megabytes or 500, options.runs or 5, options.llama
            )
        elif options.what == "serving":
            from . import serving

            serving.main(
                options.device, options.clients, options.seconds, options.megabytes or 120
            )
        elif options.what == "recurrent":
            from . import recurrent

            cases = [case for case in recurrent.CASES if not options.model
                     or recurrent.named(case).startswith(tuple(options.model))]
            if not cases:
                parser.error(f"no case begins with {options.model[0]!r}")
            recurrent.main(options.device, options.runs or 9, cases)
        elif options.what == "drivers":
            from . import drivers

            drivers.main(options.device, options.runs or 5, options.json)
        elif options.what == "memory":
            from . import memory

            memory.main(options.device, options.megabytes or memory.MEGABYTES)
        elif options.what == "cpu":
            from . import cpu

            cpu.main(options.runs or 15)
        elif options.what == "chips":
            from . import chips

            chips.main(options.chip or (), options.graph or (), options.json)
        elif options.what == "estimates":
            from . import estimates

            estimates.main(options.chip or (), options.graph or (), options.json)
        elif options.what == "isa":
            from .isa import PACK, report
            from .isa.graphs import GRAPHS

            for name in set(options.graph or ()) - {*GRAPHS, PACK}:
                parser.error(f"no graph is called {name}; there are {', '.join([*GRAPHS, PACK])}")
            chips = options.chip or ["NAVI21"]
            if options.captured:
                from .isa import beside

                beside.main(chips, options.captured, options.json)
            else:
                report.main(chips, options.graph or list(GRAPHS), options.json, options.isa)
        elif options.what == "peers":
            from .peers import report as peers
            from .peers.results import TITLES, WORKLOADS

            for name in set(options.peer or ()) - TITLES.keys():
                parser.error(f"no peer is called {name}; there are {', '.join(TITLES)}")
            known = [*WORKLOADS, peers.GENERATION]
            for name in set(options.workload or ()) - {*known}:
                parser.error(f"no workload is called {name}; there are {', '.join(known)}")
            if options.llama is None and peers.GENERATION in (options.workload or ()):
                parser.error(f"the workload {peers.GENERATION} needs --llama")
            peers.main(
                options.harness, options.peer, options.workload, seconds=options.seconds,
                limit=options.limit or 300, wait=options.wait, file=options.json,
                chart=options.chart, llama=options.llama, megabytes=options.megabytes or 500,
            )
        elif options.what == "scaling":
            from .scaling import report as scaling

            scaling.main(
                options.device, options.sweep, options.size, options.runs or 3, by=options.by,
                limit=options.limit or 300, file=options.json, chart=options.chart,
            )
        else:
            from . import steady

            steady.main(options.device, options.runs or 15)
    except (IsaError, ToolError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
