"""Whole models with random weights, beside PyTorch's; the ratio is by the time of queued runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .. import networks
from ..measured_graph import MeasuredGraph, noise
from ..pytorch import add_peer, cuda_randn, torch
from ..session import Session


def run(session: Session) -> None:
    context = session.open_context()

    def model(name: str, dtype: str, describe: Any, shape: Any, peer: Any) -> None:
        measured = MeasuredGraph(session, context, describe, {"x": noise(shape, dtype)})
        times = add_peer(session, measured.times(), peer, "queued")
        finite = bool(np.isfinite(measured.read()["y"]).all())
        measured.destroy()
        session.tell("model", model=name, dtype=dtype, finite=finite, **times)
        if not finite:
            raise ArithmeticError("the result is not finite")

    def encoder(name: str, dtype: str, batch: int, tokens: int, width: int, layers: int,
                heads: int, inner: int) -> None:
        def peer() -> Callable[[], Any]:
            import transformers

            t = torch()
            config = transformers.BertConfig(
                hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
                intermediate_size=inner, vocab_size=1000)
            with t.device("cuda"):
                found = transformers.BertModel(config, add_pooling_layer=False)
            found = found.eval().to("cuda", getattr(t, dtype))
            x = cuda_randn((batch, tokens, width), dtype)
            return lambda: found(inputs_embeds=x)
        model(name, dtype, lambda b: networks.encoder(
            b, dtype, batch, tokens, width, layers, heads, inner), (batch * tokens, width), peer)

    def images(name: str, dtype: str, batch: int) -> None:
        describe = {"resnet50": networks.resnet50, "mobilenet_v2": networks.mobilenet_v2}[name]
        shape = (batch, 3, 224, 224)

        def peer() -> Callable[[], Any]:
            import torchvision

            t = torch()
            with t.device("cuda"):
                found = getattr(torchvision.models, name)()
            found = found.eval().to("cuda", getattr(t, dtype)).to(memory_format=t.channels_last)
            x = cuda_randn(shape, dtype).to(memory_format=t.channels_last)
            t.backends.cudnn.allow_tf32 = False
            return lambda: found(x)
        model(f"{name} x{batch}", dtype, lambda b: describe(b, dtype, batch), shape, peer)

    base, small = (768, 12, 12, 3072), (384, 6, 12, 1536)
    plans: list[tuple[Callable[..., None], Any]] = session.choose(
        [(encoder, ("BERT-base 1x128", d, 1, 128, *base)) for d in ("float16", "float32")]
        + [(images, ("resnet50", d, n)) for d in ("float16", "float32") for n in (1, 16)]
        + [(encoder, ("BERT-base 8x128", "float16", 8, 128, *base)),
           (encoder, ("MiniLM 1x128", "float16", 1, 128, *small)),
           (images, ("mobilenet_v2", "float16", 1))],
        [(encoder, ("tiny", "float32", 1, 16, 32, 1, 2, 64))])
    session.run([(f"{plan[0]} {plan[1]}", partial(job, *plan)) for job, plan in plans])
