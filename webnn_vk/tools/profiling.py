"""``webnn-vk profile``: where a model's runs spend their time."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from webnn_vk.profiler.report import HEAD, cells
from webnn_vk.support.formatting import duration

from .loaded_model import Options, Tensors, loaded
from .output import emit, facts, table, writable, writing

#: Runs before the profiled ones.
WARM_UP = 2
#: Fields of the report that are numbers.
SUMS = ("runs", "every", "measured", "overhead", "stamp_seconds", "seconds", "kernel_seconds",
        "host_seconds")


def profile(
    options: Options, runs: int, every: int | None, html: Path | None, trace: Path | None
) -> None:
    """Run the model, with inputs written and outputs read, and print where the time was spent."""
    written = writable((html, (".html", ".htm")), (trace, (".json",)))
    with loaded(options, with_passes=html is not None) as model:
        tensors, bar = Tensors(model.context, model.graph), model.bar

        def run() -> None:
            tensors.write(model.feeds)
            tensors.dispatch()
            tensors.read()

        bar.begin("warming up", WARM_UP)
        for _ in range(WARM_UP):
            run()
            bar.step()
        bar.begin("profiling", runs)
        with model.context.profile(every=every) as found:
            for _ in range(runs):
                run()
                bar.step()
    if html is not None:
        with writing(html):
            html.write_text(found.html(model.passes.all()), encoding="utf-8")
    if trace is not None:
        with writing(trace):
            found.save_trace(trace)
    report = found.report
    if options.json:
        roofline = report.roofline
        emit({
            "model": model.title, "device": model.device,
            **{name: getattr(report, name) for name in SUMS}, "roofline": roofline,
            "kernels": [
                {**asdict(k), "share_of_roofline": k.share_of(roofline)} for k in report.kernels
            ],
            "host": report.host, "transfers": report.transfers,
            "written": [str(path) for path in written],
        })
        return
    facts([("Device", model.device), ("Model", model.title)])
    print()
    table(HEAD, [cells(kernel, report) for kernel in report.kernels],
          right=("share", "a run", "runs", "GFLOP/s", "GB/s", "of roof"))
    print()
    table(("host and transfers", "times", "time"), [
        *[(h.name, h.count, duration(h.seconds)) for h in report.host],
        *[(f"{t.kind}, {t.bytes / 1e6:.3f} MB", t.count, duration(t.seconds))
          for t in report.transfers],
    ], right=("times", "time"))
    print(f"\n{report.summary}")
    for path in written:
        print(f"Written   {path}")
