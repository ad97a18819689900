"""Products of models tuned, to see by how much the rules are wrong."""

from __future__ import annotations

import tempfile
from functools import partial

from ..measured_graph import MeasuredGraph, add_constant, add_input
from ..session import Session


def run(session: Session) -> None:
    from webnn_vk.api.inspection import tuner_of
    from webnn_vk.runtime.tuning.tuner import Plan

    context = session.open_context(tune=True, cache=tempfile.mkdtemp())
    tuner = tuner_of(context)
    if tuner is None:
        raise RuntimeError("the context does not tune")
    tuner.plan = Plan(candidates=8, rounds=3)
    warmer = MeasuredGraph(
        session, context, lambda b: {"y": b.relu(add_input(b, "x", "float32", 1 << 20))}, {})

    def tune(m: int, n: int, k: int) -> None:
        seen = len(tuner.outcomes)
        session.warm(lambda: warmer.run(20))
        MeasuredGraph(session, context, lambda b: {"y": b.matmul(
            add_input(b, "a", "float16", m, k),
            add_constant(b, "float16", k, n, over=k))}, {}).destroy()
        for o in tuner.outcomes[seen:]:
            session.tell("tuned", size=[m, n, k], usual=str(o.usual), chosen=str(o.chosen),
                         clock=session.clock(), usual_seconds=o.usual_seconds, seconds=o.seconds,
                         measured=[[str(x.schedule), x.seconds, x.rejected] for x in o.measured])

    sizes = session.choose(
        [(512, 4096, 4096), (1024, 1024, 1024), (128, 768, 768), (1, 4096, 4096),
         (4096, 4096, 4096), (196, 1024, 256), (16, 4096, 4096)], [(64, 64, 64)])
    session.run([(f"tune {size}", partial(tune, *size)) for size in sizes])
