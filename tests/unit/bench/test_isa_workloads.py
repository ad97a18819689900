"""The products of the workloads that peers are captured on."""

from bench.isa import graphs
from bench.isa.workloads import WORKLOADS, elements, layers


def test_products_of_bert():
    graph = graphs.described(WORKLOADS["bert_2l_128"])
    found = layers(graph)
    assert sum(each.multiply_adds for each in found) == 2 * (12 * 768**2 * 128 + 2 * 768 * 128**2)
    assert len(found) == 16 and elements(graph) == 0
    # The first's queries, keys and values need nothing; scores need two of them.
    assert [each.needs for each in found[:4]] == [set(), set(), set(), {0, 1}]
    assert found[15].needs == set(range(15))


def test_products_of_convolutions():
    (plain,) = layers(graphs.described(WORKLOADS["conv3x3_56x56_64_64"]))
    assert plain.multiply_adds == 9 * 64 * 64 * 56 * 56 and plain.outputs == 64 * 56 * 56
    # Tiles of 6 × 6 give 4 × 4 outputs each.
    assert dict(plain.winograd)[6] == 36 * 64 * 64 * 14 * 14
    (depthwise,) = layers(graphs.described(WORKLOADS["dwconv3x3_112x112_32"]))
    assert depthwise.multiply_adds == 9 * 32 * 112 * 112 and not depthwise.winograd


def test_workloads_without_products_read_elements():
    graph = graphs.described(WORKLOADS["softmax_12x128x128"])
    assert layers(graph) == [] and elements(graph) == 12 * 128 * 128
