"""In contexts with "dynamic-shapes" prompts of every length take one graph, without padding."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.contexts import open_context
from tests.support.discriminating import assert_allclose
from webnn_vk.generate import Model


@pytest.fixture(params=["cpu", "vulkan"])
def contexts(request):
    if request.param == "vulkan":
        request.getfixturevalue("vulkan")
    device = request.param
    with open_context(device=device, experimental=["dynamic-shapes"]) as named:
        with open_context(device=device) as plain:
            yield named, plain


def test_one_graph_takes_prompts_of_every_length(contexts, folder):
    named, plain = (Model.load(folder, context) for context in contexts)
    rng = np.random.default_rng(3)
    for length in (2, 3, 16, 17, 41, 5):
        ids = rng.integers(0, 256, length).tolist()
        assert named.generate_tokens(ids, 4) == plain.generate_tokens(ids, 4)
        with named.session() as one, plain.session() as other:
            found = [session._feed(ids, "logits") for session in (one, other)]
            assert_allclose(*found, rtol=1e-4, atol=1e-5)
            # Behind tokens in the cache.
            more = [*ids, *rng.integers(0, 256, 7).tolist()]
            found = [session._feed(more, "logits") for session in (one, other)]
            assert_allclose(*found, rtol=1e-4, atol=1e-5)
    # One for prompts, one for single tokens.
    assert len(named._engine._graphs) == 2
    graph = named._engine.graph(7)
    assert graph is named._engine.graph(100)
    if contexts[0].device_info.is_vulkan:
        assert graph.report().donated
        assert not [note for note in graph.report().donated if "copy" in note]
    assert_allclose(named.logits(ids), plain.logits(ids), rtol=1e-4, atol=1e-5)
