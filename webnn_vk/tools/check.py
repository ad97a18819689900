"""``webnn-vk check``: where operators run and why, and which are not supported."""

from __future__ import annotations

from collections import Counter

from webnn_vk.compiler.program import GraphReport
from webnn_vk.support.errors import sanitize

from .loaded_model import Options, loaded
from .models import UnsupportedModel
from .output import emit, facts, table


def check(options: Options) -> int:
    """Print where each operator runs; the exit status is 1 where the model is not supported."""
    try:
        with loaded(options) as model:
            report = model.report
    except UnsupportedModel as error:
        problems = error.problems
        if options.json:
            emit({"model": options.model, "supported": False, "problems": problems})
        else:
            print(f"{options.model} is not supported, for {len(problems)} reason"
                  f"{'s' * (len(problems) != 1)}:\n")
            table(("node", "operator", "reason"), [
                (sanitize(p["node"]), p["operator"], p["reason"]) for p in problems
            ])
        return 1
    counts = count_operators(report)
    on_cpu = [step for step in report.steps if step.device == "cpu"]
    if options.json:
        emit({
            "model": model.title, "device": model.device, "supported": True, "problems": [],
            "steps": {name: report.count(name) for name in ("vulkan", "cpu")},
            "operators": [
                {"operator": name, "vulkan": count["vulkan"], "cpu": count["cpu"]}
                for name, count in counts.items()
            ],
            "on_cpu": [{"operators": s.operators, "reason": s.reason} for s in on_cpu],
            "folded": len(report.folded),
        })
        return 0
    facts([("Device", model.device), ("Model", f"{model.title}: all operators are supported"),
           ("Steps", report.summary)])
    print()
    table(("operator", "Vulkan", "CPU"), [
        (name, count["vulkan"] or "", count["cpu"] or "") for name, count in counts.items()
    ], right=("Vulkan", "CPU"))
    reasons = Counter(
        (sanitize(" + ".join(step.operators)), step.reason) for step in on_cpu if step.reason
    )
    if reasons:
        print("\nOn the CPU, because:")
        table(("operators", "reason", "steps"), [
            (*key, count) for key, count in reasons.most_common()
        ], right=("steps",))
    return 0


def count_operators(report: GraphReport) -> dict[str, Counter[str]]:
    """How many of each operator run on "vulkan" and on "cpu", by the operators' names."""
    counts: dict[str, Counter[str]] = {}
    for step in report.steps:
        for title in step.operators:
            name = title.partition(" ")[0].partition("[")[0]
            counts.setdefault(name, Counter())[step.device] += 1
    return dict(sorted(counts.items()))
