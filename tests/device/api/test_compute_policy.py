"""``create_context(compute_policy=…)`` and the policy in effect (experimental "compute-policy")."""

import numpy as np
import pytest

from tests.support.contexts import open_context
from tests.support.discriminating import assert_allclose
from webnn_vk import MLGraphBuilder, Settings, ml
from webnn_vk.api.compute_policy import effective_policy

POLICY = ("compute-policy",)


def created(policy, experimental=POLICY, **options):
    settings = Settings(device=None, cpu_engine="numpy", cache="off")
    return ml.create_context(
        settings=settings, experimental=experimental, compute_policy=policy, **options
    )


@pytest.mark.parametrize("accelerated", [True, False])
def test_fallback_is_the_cpu_device(accelerated):
    with created("fallback", accelerated=accelerated).result() as context:
        assert context.device_info.type == "numpy"
        assert context.compute_policy == "fallback"
        assert context.accelerated is False


@pytest.mark.parametrize("odd", ["fast", "", 0, ["default"], b"default"])
def test_other_values_are_refused(odd):
    with pytest.raises(TypeError, match="compute_policy: .* is not one of default, high-perf"):
        created(odd).result()


def test_the_policy_needs_its_name():
    with pytest.raises(TypeError, match=r"experimental=\['compute-policy'\]"):
        created("fallback", experimental=None).result()


def test_the_policy_replaces_the_preference():
    with pytest.raises(TypeError, match="replaces power_preference"):
        created("default", power_preference="low-power").result()


@pytest.mark.parametrize(
    ("kind", "policy"),
    [
        ("discrete", "high-performance"), ("integrated", "low-power"), ("virtual", "default"),
        ("other", "default"), ("cpu", "fallback"), ("numpy", "fallback"),
    ],
)
def test_the_device_decides_what_is_in_effect(kind, policy):
    class State:
        experimental = POLICY

        class info:
            type = kind

    assert effective_policy(State, "compute_policy") == policy
    assert effective_policy(State, "compute_policy", on_device=False) == "fallback"


@pytest.mark.device
def test_a_graph_on_the_cpu_alone_is_a_fallback():
    """On a device that passes for a discrete GPU."""
    settings = {"experimental": POLICY, "force_cpu": ("exp",)}
    with open_context(limits={"device_type": "discrete"}, **settings) as context:
        assert context.compute_policy == "high-performance"
        for method, policy in (("tanh", "high-performance"), ("exp", "fallback")):
            builder = MLGraphBuilder(context)
            x = builder.input("x", {"data_type": "float32", "shape": [4]})
            graph = builder.build({"y": getattr(builder, method)(x)}).result()
            assert graph.compute_policy == policy
            data = np.arange(4, dtype=np.float32) / 4
            found = context.compute(graph, {"x": data})["y"]
            assert_allclose(found, getattr(np, method)(data), rtol=1e-6)


def test_other_contexts_have_no_policy(cpu_context):
    assert not hasattr(cpu_context, "compute_policy")
    with pytest.raises(AttributeError, match=r"experimental=\['compute-policy'\]"):
        _ = cpu_context.compute_policy
