"""Charts contain their labels as text; without matplotlib there is one line."""

import sys
from pathlib import Path

import pytest

from bench import charts
from bench.peers.results import Result, rows
from bench.scaling.points import Point
from bench.scaling.report import Measured
from webnn_vk.tools import ToolError

TABLE = rows([
    Result("webnn_vk", "matmul_512", 2.0, 1.0, 0.0),
    Result("ncnn_vulkan", "matmul_512", 12.0, 1.0, 0.0),
    Result("iree_vulkan", "matmul_512", 1234.0, 1.0, 0.5),
    Result("webnn_vk", "bert_2l_128", 7.0, 1.0, 0.0),
    Result("ncnn_vulkan", "bert_2l_128", failure="timeout after 9s"),
])


def test_bars_of_the_peers(tmp_path):
    pytest.importorskip("matplotlib")
    file = tmp_path / "peers.svg"
    charts.peers_chart(TABLE, "A CPU", file)
    text = file.read_text()
    for said in ("matmul 512³", "2  (6.0×)", "1234 wrong", "ncnn: no result", "IREE", "A CPU",
                 "1 of 2 workloads"):
        assert said in text
    again = tmp_path / "again.svg"
    charts.peers_chart(TABLE, "A CPU", again)
    assert again.read_text() == text


def test_plots_of_the_sweeps(tmp_path):
    pytest.importorskip("matplotlib")
    points = (
        Point(64, 10, 1.0, 1.0), Point(128, 20, 2.0, 2.0), Point(197, 30, failure="no memory"),
        Point(256, 40, 12.0, 4.0),
    )
    texts = []
    for by in ("clock", "processor"):
        file = tmp_path / f"{by}.svg"
        charts.scaling_chart([Measured("tokens", "BERT", "tokens", by, points)], "A GPU", file)
        texts.append(file.read_text())
        assert all(f">{said}<" in texts[-1] for said in ("BERT", "tokens", "A GPU", "64", "256"))
        assert ">197<" not in texts[-1]
    assert ">cliff<" in texts[0] and ">cliff<" not in texts[1]


def test_a_file_that_cannot_be_written(tmp_path):
    pytest.importorskip("matplotlib")
    with pytest.raises(ToolError, match=r"--chart .*chart\.docx"):
        charts.peers_chart(TABLE, "", tmp_path / "chart.docx")
    with pytest.raises(ToolError, match=r"--chart chart\.docx: \.svg, \.png or \.pdf"):
        charts.check(Path("chart.docx"))
    charts.check(Path("chart.svg"))


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ToolError, match=r"the package matplotlib: pip install 'webnn_vk\[bench\]'"):
        charts.plotting()
