"""The process that generates text on another driver:
`python -m tests.conformance.swiftshader.generation RESULT.json --seed SEED`.

Started by `test_generation.py` with the driver's manifest in the environment. Writes JSON: the
device; by model the largest difference of its logits from the reference, beside the largest logit,
and whether host and device chose the same tokens; messages of the validation layer.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from tests.conformance.swiftshader.child import context_on
from tests.support.reference_decoder import CONFIGS, logits, random_weights, write_folder
from webnn_vk import MLContext
from webnn_vk.driver.vulkan.instance import instance, reported
from webnn_vk.generate import Model

#: Architectures that are drawn.
SAMPLE = 2
SAMPLING = {"temperature": 1.1, "top_k": 30, "top_p": 0.95, "repetition_penalty": 1.2, "seed": 7}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("result", type=Path)
    parser.add_argument("--seed", default="")
    options = parser.parse_args()
    warnings.simplefilter("ignore", RuntimeWarning)
    names = random.Random(options.seed).sample(sorted(CONFIGS), SAMPLE)
    with context_on("vulkan") as context, context_on("cpu") as cpu:
        models = [_compared(name, None, context, cpu) for name in names]
        models.append(_compared("llama", "int4", context, cpu))
        result = {
            "device": str(context.device_info), "models": models, "messages": reported,
            "validating": instance().validating,
        }
    options.result.write_text(json.dumps(result), encoding="utf-8")
    return 0


def _compared(
    name: str, dtype: str | None, context: MLContext, cpu: MLContext
) -> dict[str, Any]:
    """Rounded weights are compared with the CPU device's, others with the reference."""
    config, weights = CONFIGS[name], random_weights(CONFIGS[name], 1)
    ids = np.random.default_rng(3).integers(0, config["vocab_size"], 40).tolist()
    with tempfile.TemporaryDirectory() as folder:
        write_folder(Path(folder), config, weights)
        model = Model.load(folder, context, dtype)
        expected = Model.load(folder, cpu, dtype).logits(ids) if dtype else \
            logits(config, weights, ids)
    difference = np.abs(model.logits(ids) - expected).max() / np.abs(expected).max()
    chosen = []
    for on_device in (False, True):
        model._engine.chooser.is_used = on_device
        chosen.append(model.generate_tokens(ids, 12, **SAMPLING))
    greedy = model.generate_tokens(ids, 1)[0]
    return {
        "name": f"{name} {dtype or 'float32'}", "difference": float(difference),
        "chosen": chosen, "greedy": greedy == int(np.argmax(expected[-1])),
        "cpu_steps": model.report().count("cpu"),
    }


if __name__ == "__main__":
    sys.exit(main())
