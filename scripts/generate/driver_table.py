"""docs/drivers.md: what each driver can do, from their profiles and facets, and the figures and
counts of the last measurements, in docs/drivers.json:

    python -m bench drivers --json docs/drivers.json
    WEBNN_VK_DRIVER=kompute python -m scripts.generate.driver_table    # the vectors
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT
from tests.support.profiles import stored_profile

PAGE = ROOT / "docs" / "drivers.md"
MEASUREMENTS = ROOT / "docs" / "drivers.json"
VECTORS = ROOT / "docs" / "kompute-vectors.json"
NATIVE = ("float32", "int32", "uint32")


def text() -> str:
    """The generated table."""
    from bench.drivers import MEASUREMENTS as TITLES
    from webnn_vk.driver.kompute.driver import KomputeDriver
    from webnn_vk.driver.kompute.profile import kompute_profile
    from webnn_vk.driver.null.driver import NullDriver
    from webnn_vk.driver.null.profile import NULL_PROFILE

    device = stored_profile("llvmpipe")
    profiles = {"vulkan": device, "kompute": kompute_profile(device), "null": NULL_PROFILE}
    drivers: dict[str, Any] = {"vulkan": None, "kompute": KomputeDriver, "null": NullDriver}
    figures = json.loads(MEASUREMENTS.read_text(encoding="utf-8"))

    def row(title: str, *cells: str) -> str:
        return f"| {title} | {' | '.join(cells)} |"

    def facet(name: str, with_vulkan: str) -> list[str]:
        return [with_vulkan if d is None else f"no: {d.absent[name]}" for d in drivers.values()]

    def types(name: str) -> str:
        features = profiles[name].features
        natively = [t for t in ("float16", "int8", "int64") if t in features]
        return f"natively: {', '.join(natively)}" if natively else "emulated"

    lines = [
        row("", *profiles), row("---", *["---"] * 3),
        row("computes", "yes", "yes", "no"),
        row("float32, int32, uint32", "natively", "natively", "–"),
        row("8-, 16- and 64-bit types on lavapipe", types("vulkan"), types("kompute"), "–"),
        row("subgroups, cooperative matrices", "both", "subgroups", "neither"),
        row("sharing, semaphores", *facet("sharing", "yes")),
        row("timestamps", *facet("timestamps", "yes")),
        row("memory", "one shared arena", "one allocation per tensor", "one shared arena"),
        row("largest tensor on lavapipe, MiB",
            *(f"{p.max_tensor_byte_length >> 20}" for p in profiles.values())),
        row("detects a lost device", "yes", "no", "–"),
        row("installation", "`pip`", "`scripts/install-kompute`, about 130 s of CPU time", "–"),
        *(row(f"{title} ¹", *(f"{figures[name][key]:.3g}" for name in profiles))
          for key, title in TITLES.items()),
        "",
        f"¹ `python -m bench drivers` on {figures['date']}, lavapipe on two cores of an "
        f"{figures['processor']}: medians of the CPU time of all threads of the process, kernels "
        f"included. Kompute's pipelines are compiled in the first run. "
        f"Device: {figures['kompute']['name']}.",
    ]
    return "\n".join(lines)


def vectors() -> str:
    """Counts of the conformance vectors through Kompute, in words."""
    found = json.loads(VECTORS.read_text(encoding="utf-8"))
    by_type = found["types"]
    native = sum(count for name, count in by_type.items() if name in NATIVE)
    each = ", ".join(f"{name} {count:,}" for name, count in sorted(by_type.items()))
    return (
        f"{found['passed']:,} pass, {found['failed']} fail, and {found['skipped']} are skipped for "
        f"reasons that hold on every device. They cover {len(found['operators'])} operators, and "
        f"no step runs on the CPU. {native:,} of them use types that Kompute has "
        f"({', '.join(NATIVE)}); the others are emulated. By the type of the first output: {each}"
    )


def files() -> dict[Path, str]:
    """The page with its generated parts updated."""
    page = PAGE.read_text(encoding="utf-8")
    for mark, part in (("table", f"\n{text()}\n"), ("vectors", vectors())):
        pattern = rf"(<!-- {mark} -->).*?(<!-- /{mark} -->)"
        page, count = re.subn(pattern, lambda m, part=part: f"{m[1]}{part}{m[2]}", page,
                              flags=re.DOTALL)
        assert count == 1, f"the marks {mark} are gone from {PAGE.name}"
    return {PAGE: page}


def count_vectors() -> int:
    """Runs all vectors as inputs with the environment's driver, and writes the counts."""
    import webnn_vk
    from tests.conformance.wpt import conformance

    tally, types, operators = conformance.Tally(), Counter[str](), set[str]()
    settings = conformance.settings_for("vulkan", "inputs")
    with webnn_vk.ml.create_context(settings=settings).result() as context:
        for file, case in conformance.cases():
            before = tally.passed
            conformance.run(context, tally, file, case, "inputs")
            if tally.passed > before:
                outputs = case["graph"]["expectedOutputs"].values()
                types[next(iter(outputs))["descriptor"]["dataType"]] += 1
                operators |= {step["name"] for step in case["graph"]["operators"]}
    counts = {
        "passed": tally.passed, "failed": tally.failed, "skipped": tally.skipped,
        "types": dict(types), "operators": sorted(operators),
    }
    VECTORS.write_text(json.dumps(counts, indent=1) + "\n", encoding="utf-8")
    print(tally)
    return not tally.ok


if __name__ == "__main__":
    sys.exit(count_vectors())
