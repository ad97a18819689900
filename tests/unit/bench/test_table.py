"""The benchmarks' table: columns line up."""

from bench.table import show


def test_columns_line_up(capsys):
    show(["model", "ms"], [["A", "1.0"], ["Long name", "1000.0"]])
    assert capsys.readouterr().out == (
        "\nmodel          ms\n---------  ------\nA             1.0\nLong name  1000.0\n"
    )
