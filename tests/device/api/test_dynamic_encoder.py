"""MiniLM with a named batch and named tokens: one build serves all shapes, in the memory of the
largest static graph. Usual runs take one layer and few shapes, ``--explore`` all six and 200."""

from __future__ import annotations

import gc
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.contexts import open_context
from tests.support.counting import calls_of
from tests.support.discriminating import assert_allclose
from tests.support.models import MINILM
from webnn_vk import MLDynamicDimension
from webnn_vk.api.ml_graph import executable_of
from webnn_vk.examples import sentence_encoder

BATCH, TOKENS = 4, 48
#: The most calls for a shape that needs no compilation: BASE_CALLS, and STEP_CALLS per dispatch.
#: 5,300 and 20 were seen; compiling for a shape takes hundreds of thousands.
BASE_CALLS, STEP_CALLS = 7000, 30


@pytest.mark.device
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("limits", [
    pytest.param({}, id="own", marks=pytest.mark.explore),
    pytest.param({"device_type": "discrete"}, id="gpu"),
])
def test_one_build_serves_all_shapes(vulkan, request, limits):
    full = request.config.option.explore
    config = MINILM if full else replace(MINILM, layers=1, vocabulary=500)
    rng = np.random.default_rng(1)
    arrays = {
        name: rng.uniform(-0.1, 0.1, shape).astype(np.float32)
        for name, shape in sentence_encoder._weight_shapes(config)
    }
    model = sentence_encoder.Model(Path(), config, arrays, tokenizer=None)
    with open_context(limits=limits, experimental=["dynamic-shapes"]) as context:
        weights = sentence_encoder.Weights(context, model)
        weights.upload()

        def memory():
            gc.collect()  # what earlier tests left is not freed in between
            context.fence().wait()
            return context._state.device.memory_in_use()

        before = memory()
        largest = sentence_encoder.build_encoder(weights, BATCH, TOKENS).result()
        static_bytes = memory() - before
        arenas = sum(executable_of(largest).program.arenas)
        largest.destroy()
        del largest
        before = memory()
        graph = sentence_encoder.build_encoder(
            weights, MLDynamicDimension("batch", BATCH), MLDynamicDimension("tokens", TOKENS)
        ).result()
        # Products in parts, of GPUs for few rows, need more memory at their upper bounds: once.
        needed = max(sum(made.executable.program.arenas) for made in graph._shapes._compiled)
        static_bytes += needed if needed > arenas else 0
        assert memory() - before <= 1.1 * static_bytes
        steps = graph.report().dispatches
        pick, compiled = random.Random(5), 0
        for _ in range(200 if full else 4):
            batch, tokens = pick.randint(1, BATCH), pick.randint(1, TOKENS)
            ids = rng.integers(0, config.vocabulary, (batch, tokens)).astype(np.int32)
            feeds = {"ids": ids, "mask": np.ones((batch, tokens), np.float32)}
            known, sizes = len(graph._shapes._compiled), (batch, tokens)
            calls = calls_of(lambda sizes=sizes: graph._shapes._find(sizes))
            if len(graph._shapes._compiled) == known:
                assert calls <= BASE_CALLS + STEP_CALLS * steps, sizes
            else:
                compiled += 1
            got = context.compute(graph, feeds)
            static = sentence_encoder.build_encoder(weights, batch, tokens).result()
            wanted = context.compute(static, feeds)
            static.destroy()
            for name, array in wanted.items():
                assert_allclose(got[name], array, rtol=1e-4, atol=1e-5)
        assert memory() - before <= 1.1 * static_bytes
        assert compiled <= 8
