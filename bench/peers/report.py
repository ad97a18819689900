"""`python -m bench peers`: tables, JSON and a bar chart of this library and the peers."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from webnn_vk.codegen.files import write_atomically
from webnn_vk.tools import ToolError

from .. import generation, llama_cpp
from ..table import show
from .harness import Harness, located
from .results import (
    ON_VULKAN,
    OURS,
    RIGHT,
    TITLES,
    WORKLOADS,
    Row,
    cells,
    geometric_mean,
    ours_not_right,
    read,
    remarks,
    rows,
    summary,
)

#: The workload that is measured in this process, and needs the folder of node-llama-cpp.
GENERATION = "generation"


def main(
    folder: Path | None,
    peers: Sequence[str] | None,
    workloads: Sequence[str] | None,
    *,
    seconds: float,
    limit: float,
    wait: float,
    file: Path | None,
    chart: Path | None,
    llama: Path | None = None,
    megabytes: int = 500,
) -> None:
    """Measure one workload after the other with all peers; print tables, and write all to files.
    The JSON file is written after every figure. ``llama``: the folder of node-llama-cpp; a decoder
    of ``megabytes`` is measured too then, beside llama.cpp and ncnn."""
    if chart is not None:
        from ..charts import check

        check(chart)
    if llama is not None:
        llama_cpp.check(llama)
    names = [name for name in workloads or WORKLOADS if name != GENERATION]
    harness, asked = None, []
    if names:
        harness = located(folder)
        asked = _asked(harness, peers)
        if missing := sorted(set(names) - harness.workloads()):
            raise ToolError(f"no models of {', '.join(missing)} in {harness.root}/models")
    written: dict[str, Any] = {**machine(), "started": time.strftime("%F %T"), "measured": []}
    print("\n".join(described(written)))
    try:
        for name in names:
            for peer in asked:
                assert harness is not None
                measured = harness.measure(peer, name, seconds, limit, wait)
                written["measured"].append(measured)
                _write(written, file)
                print(_progress(measured), file=sys.stderr, flush=True)
        if llama is not None:
            written[GENERATION] = generation.beside("vulkan", megabytes, llama)
    except KeyboardInterrupt:
        print("bench: interrupted; this is what there is", file=sys.stderr)
    table = rows(map(read, written["measured"]))
    if table:
        _print(table)
    if GENERATION in written:
        print("\na decoder, by the clock; a token: the least of several")
        generation.show_beside(written[GENERATION])
    for figure in ("steady", "cold"):
        written[figure] = {
            "geometric_mean": geometric_mean(table, figure)[0],
            "ratios": {row.workload: row.ratio(figure) for row in table},
        }
    _write(written, file)
    if chart is not None and table:
        from ..charts import peers_chart

        peers_chart(table, "\n".join(described(written)), chart)
    if wrong := ours_not_right(table):
        raise ToolError(f"no right result of ours: {', '.join(wrong)}")


def _asked(harness: Harness, peers: Sequence[str] | None) -> list[str]:
    """The named peers, by default all that are set up."""
    asked = [peer for peer in TITLES if peer in peers or peer == OURS] if peers else list(TITLES)
    absent = [peer for peer in asked if not harness.has(peer)]
    if OURS in absent or (peers and absent):
        raise ToolError(f"no environment of {', '.join(absent)} in {harness.root}")
    if absent:
        print(f"not set up: {', '.join(TITLES[peer] for peer in absent)}", file=sys.stderr)
    there = [peer for peer in asked if peer not in absent]
    if not set(there) & ON_VULKAN.keys():
        raise ToolError("none of the peers on Vulkan takes part")
    return there


def machine() -> dict[str, Any]:
    """The processor, the speed of llvmpipe's loads on it, and whether there is a shader archive."""
    import webnn_vk
    from webnn_vk.api.ml_graph import executable_of
    from webnn_vk.codegen.archive import find_archive
    from webnn_vk.runtime.tuning.probe import probe
    from webnn_vk.support.processor import processor
    from webnn_vk.tools.devices import open_context

    # The device on which the harness runs this library.
    with open_context("llvmpipe") as context:
        builder = webnn_vk.MLGraphBuilder(context)
        x = builder.input("x", {"data_type": "float32", "shape": [4]})
        graph = builder.build({"y": builder.add(x, x)}).result()
        loads = probe(executable_of(graph).device)
        return {
            "processor": processor(),
            "device": str(context.device_info),
            "slow_gathers": loads.slow_gathers,
            "storage_to_texel_time": loads.storage / loads.texel,
            "pack": find_archive() is not None,
        }


def described(written: dict[str, Any]) -> list[str]:
    """The machine as text."""
    kind = "slow" if written["slow_gathers"] else "not slow"
    lines = [
        f"{written['processor']}; gathers are {kind}: a product by storage buffers takes "
        f"{written['storage_to_texel_time']:.1f} times as long as by texels",
        written["device"],
    ]
    if not written["pack"]:
        lines.append("ours without a shader archive, which wheels have: WEBNN_VK_PACK names one")
    return lines


def _print(table: Sequence[Row]) -> None:
    for figure, title in (
        ("steady", "milliseconds of a run (median), inputs and results in NumPy's arrays"),
        ("cold", "seconds from empty caches to the first result (build and first run)"),
    ):
        print(f"\n{title}; (wrong: …): further than {RIGHT:g} of the largest from the reference")
        show(*cells(table, figure))
        print(f"\n{summary(table, figure)}")
    for line in remarks(table):
        print(line)


def _progress(measured: dict[str, Any]) -> str:
    result = read(measured)
    who = f"{TITLES[result.peer]}, {WORKLOADS.get(result.workload, result.workload)}"
    if result.failure:
        return f"{who}: {result.failure.strip().splitlines()[-1][:200]}"
    return (
        f"{who}: {result.steady:.2f} ms, cold {result.cold:.2f} s; "
        f"others kept {result.busy:.2f} processors busy"
    )


def _write(written: dict[str, Any], file: Path | None) -> None:
    if file is not None:
        text = json.dumps(written, indent=1, ensure_ascii=False) + "\n"
        write_atomically(file, text.encode(), mode=0o644)
