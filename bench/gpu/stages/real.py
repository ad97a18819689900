"""Language models against transformers, exports of torchvision against PyTorch on the CPU, a tensor
shared with CUDA. Parts whose packages aren't there are left out, with a note."""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..measured_graph import relative_error
from ..pytorch import torch
from ..session import ROOT, Job, Session


def run(session: Session) -> None:
    jobs: list[Job] = []
    if torch() is not None:
        jobs.append(("share_with_cuda.py", partial(_share, session)))
    try:
        import torch as t
        import transformers
    except ImportError as error:
        session.tell("note", text=f"no language models: {error}")
    else:
        transformers.utils.logging.disable_progress_bar()
        t.manual_seed(0)
        common = dict(vocab_size=512, hidden_size=256, intermediate_size=512, num_hidden_layers=3,
                      num_attention_heads=8, num_key_value_heads=2, max_position_embeddings=2048,
                      bos_token_id=1, eos_token_id=2, pad_token_id=0)
        configs = {"llama": lambda: transformers.LlamaConfig(**common),
                   "qwen2": lambda: transformers.Qwen2Config(**common),
                   "gemma3": lambda: transformers.Gemma3TextConfig(**common, head_dim=32,
                                                                   sliding_window=64)}
        jobs += [(f"language model {n}", partial(_language_model, session, n, make))
                 for n, make in list(configs.items())[: session.choose(3, 1)]]
    try:
        import torchvision
    except Exception as error:
        session.tell("note", text=f"no exports of torchvision: {error}"[:200])
    else:
        names = ("resnet18", "mobilenet_v3_small", "vit_b_16")
        jobs += [(f"export {n}", partial(_export, session, n, getattr(torchvision.models, n)))
                 for n in names[: session.choose(3, 1)]]
    session.run(jobs)


def _language_model(session: Session, name: str, make: Callable[[], Any]) -> None:
    import torch as t
    import transformers

    from webnn_vk.generate import Model

    model = transformers.AutoModelForCausalLM.from_config(make()).eval().float()
    for weights in model.parameters():
        if weights.dim() == 2:
            weights.data.normal_(0, 1.4 / weights.shape[-1] ** 0.5)
    count, ids = session.choose(32, 8), np.random.default_rng(1).integers(3, 512, 150).tolist()
    with t.no_grad():
        wanted = model(t.tensor([ids])).logits[0, -1].numpy()
        tokens = list(ids)
        for _ in range(count):
            tokens.append(int(model(t.tensor([tokens])).logits[0, -1].argmax()))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        for dtype, bound in (("float32", 1e-4), ("float16", 2e-2)):
            context = session.open_context()
            ours = Model.load(folder, context, dtype=dtype, context_length=512)
            logits = np.asarray(ours.logits(ids)).reshape(-1, wanted.size)[-1]
            found = list(ours.generate_tokens(ids, count))[-count:]
            equal = [a == b for a, b in zip(found, tokens[150:], strict=True)]
            error = relative_error(logits, wanted)
            # Rounding may turn a close choice in float16, not in float32.
            session.tell("right", what="language model", model=name, dtype=dtype, error=error,
                         tokens=count, equal=[*equal, False].index(False),
                         ok=error <= bound and (all(equal) or dtype == "float16"))
            context.destroy()


def _export(session: Session, name: str, make: Callable[..., Any]) -> None:
    import torch as t

    from webnn_vk.onnx import Session as OnnxSession

    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    t.manual_seed(0)
    model, x = make(weights=None).eval(), t.randn(1, 3, 224, 224)
    if name == "vit_b_16":  # its untrained head gives zeros
        t.nn.init.normal_(model.heads[-1].weight, std=0.02)
    with t.no_grad():
        wanted = model(x).numpy()
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "model.onnx")
        t.onnx.export(model, (x,), file, dynamo=False, opset_version=17)
        context = session.open_context()
        onnx = OnnxSession(file, context=context)
        feeds = {onnx.get_inputs()[0].name: x.numpy()}
        found, times = onnx.run(None, feeds)[0], []
        for _ in range(10):
            start = time.perf_counter()
            onnx.run(None, feeds)
            times.append(time.perf_counter() - start)
    error = relative_error(found, wanted)
    session.tell("right", what="export", model=name, dtype="float32", error=error,
                 reference_is_zero=not wanted.any(), seconds=float(np.median(times)),
                 ok=error <= 1e-5)
    context.destroy()


def _share(session: Session) -> None:
    done = subprocess.run([sys.executable, str(ROOT / "examples" / "share_with_cuda.py")],
                          text=True, capture_output=True, timeout=60)
    session.tell("right", what="share with CUDA", ok=not done.returncode,
                 text=(done.stdout + done.stderr)[-400:])
