"""Tables and ratios of the peers' measurements, on small synthetic results."""

import math

import pytest

from bench.peers import results
from bench.peers.results import Result, cells, geometric_mean, read, remarks, rows, summary


def result(peer, workload="matmul_512", steady=10.0, cold=1.0, error=1e-6, **others):
    return Result(peer, workload, steady, cold, error, **others)


def failed(peer, workload="matmul_512", failure="rc=1: Segmentation fault"):
    return Result(peer, workload, failure=failure)


def row(*found):
    (only,) = rows(found)
    return only


def test_a_result_is_read():
    measured = {
        "peer": "ncnn_vulkan", "workload": "matmul_512", "ms": 4.5, "build_s": 0.25,
        "first_run_s": 0.5, "max_rel_err": 2e-7, "foreign_cores": 0.125,
        "info": {"layers_without_vulkan": ["LayerNorm"]},
    }
    assert read(measured) == Result(
        "ncnn_vulkan", "matmul_512", 4.5, 0.75, 2e-7, 0.125, ("LayerNorm",)
    )
    failure = {"peer": "ncnn_vulkan", "workload": "matmul_512", "error": "timeout after 9s"}
    assert read(failure) == failed("ncnn_vulkan", failure="timeout after 9s")


@pytest.mark.parametrize(("error", "right"), [
    (0.0, True), (results.RIGHT, True), (1.1 * results.RIGHT, False), (math.nan, False),
    (math.inf, False), (None, False),
])
def test_what_is_right(error, right):
    assert result("webnn_vk", error=error).right is right


def test_the_ratio_is_of_the_fastest_peer_with_a_right_result():
    found = row(
        result("webnn_vk", steady=2.0, cold=4.0),
        result("ncnn_vulkan", steady=9.0, cold=1.0),
        result("ort_webgpu", steady=8.0, cold=3.0),
        result("iree_vulkan", steady=1.0, cold=0.1, error=0.9),
        result("ort_cpu", steady=0.1, cold=0.1),
        failed("tinygrad_webgpu"),
    )
    assert (found.fastest("steady").peer, found.ratio("steady")) == ("ort_webgpu", 4.0)
    assert (found.fastest("cold").peer, found.ratio("cold")) == ("ncnn_vulkan", 0.25)


@pytest.mark.parametrize("found", [
    [result("webnn_vk")],
    [result("webnn_vk"), result("ort_cpu")],
    [result("webnn_vk"), failed("ncnn_vulkan"), result("iree_vulkan", error=1.0)],
    [failed("webnn_vk"), result("ncnn_vulkan")],
    [result("webnn_vk", error=0.5), result("ncnn_vulkan")],
    [result("ncnn_vulkan")],
])
def test_no_ratio_without_two_right_results(found):
    table = rows(found)
    assert table[0].ratio("steady") is None
    assert geometric_mean(table, "steady") == (None, 0)
    assert summary(table, "steady").startswith("no ratio")


def test_the_mean_says_how_many_it_is_of():
    table = rows([
        result("webnn_vk", steady=1.0), result("ncnn_vulkan", steady=2.0),
        result("webnn_vk", "resnet50_v1_224", 1.0), result("iree_vulkan", "resnet50_v1_224", 8.0),
        result("webnn_vk", "bert_2l_128", 1.0), failed("iree_vulkan", "bert_2l_128"),
    ])
    assert geometric_mean(table, "steady") == (pytest.approx(4.0), 2)
    assert summary(table, "steady").endswith("4.00, 2 of 3 workloads")


def test_the_table():
    table = rows([
        result("iree_vulkan", "bert_2l_128", 3.0, 7.0, error=0.5),
        result("webnn_vk", "bert_2l_128", 1.25, 2.5),
        failed("webnn_vk", failure="timeout after 300s"),
        result("ncnn_vulkan", steady=123.456), failed("iree_vulkan"),
    ])
    titles, found = cells(table, "steady")
    assert titles == ["", "ours", "ncnn", "IREE", "fastest peer", "ratio"]
    assert found == [
        ["matmul 512³", "too long", "123.5", "failed", "ncnn", "-"],
        ["BERT, 2 layers", "1.2", "-", "(wrong: 3.0)", "-", "-"],
    ]
    assert cells(table, "cold")[1][1] == ["BERT, 2 layers", "2.50", "-", "(wrong: 7.00)", "-", "-"]


def test_remarks_name_what_is_wrong_absent_or_elsewhere():
    table = rows([
        result("webnn_vk", busy=0.1), result("ncnn_vulkan", on_host=("LayerNorm",)),
        result("iree_vulkan", error=0.5), result("ort_webgpu", error=None),
        failed("tinygrad_webgpu", failure="Traceback\nKeyError: 'x'\n"),
    ])
    assert remarks(table) == [
        "ncnn, matmul 512³: on the CPU: LayerNorm",
        "IREE, matmul 512³: wrong by 5.0e-01 of the largest element",
        "ORT WebGPU, matmul 512³: not compared with the reference",
        "tinygrad, matmul 512³: KeyError: 'x'",
    ]
    (busy,) = remarks(rows([result("webnn_vk", busy=0.1), result("ncnn_vulkan", busy=1.2)]))
    assert "up to 1.2 processors busy" in busy


def test_ours_has_to_be_right():
    table = rows([
        result("webnn_vk"), failed("webnn_vk", "matmul_1024"),
        result("webnn_vk", "bert_2l_128", error=1.0), result("ncnn_vulkan", "resnet50_v1_224"),
    ])
    assert results.ours_not_right(table) == ["matmul 1024³", "BERT, 2 layers"]
