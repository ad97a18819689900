"""The table of ONNX operators compared with ONNX's own definitions."""

import inspect

import onnx
import pytest
from onnx.defs import OpSchema

import webnn_vk.onnx  # noqa: F401  (fills the table)
from tests.support.onnx_definitions import all_records
from webnn_vk.onnx.reading import OLDEST_OPSET
from webnn_vk.onnx.records import MICROSOFT, NEWEST, find, onnx_operator

NEWEST_OPSET = onnx.defs.onnx_opset_version()
RECORDS = [r for r in all_records() if r.domain in ("", "ai.onnx.ml")]
#: Attributes that inference doesn't need, or that no version from opset 7 on has.
LEFT_OUT = {("BatchNormalization", "is_test"), ("Optional", "type")}


def versions(domain, name):
    """Opset versions in which an operator changed, those still in force at the oldest included."""
    found = sorted(
        s.since_version
        for s in onnx.defs.get_all_schemas_with_history()
        if (s.domain, s.name) == (domain, name) and not s.deprecated
    )
    if domain:
        return found
    older = [v for v in found if v <= OLDEST_OPSET]
    return older[-1:] + [v for v in found if v > OLDEST_OPSET]


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: f"{r.name}-{r.first}")
def test_records_take_what_onnx_describes(record):
    own = [v for v in versions(record.domain, record.name) if record.first <= v <= record.last]
    if record.name == "SimplifiedLayerNormalization":
        pytest.skip("ONNX Runtime's, in ONNX's domain")
    assert own or record.last < OLDEST_OPSET, "no version of ONNX has it"
    for version in own:
        schema = onnx.defs.get_schema(record.name, version, record.domain)
        assert set(schema.attributes) <= record.attributes | {
            a for n, a in LEFT_OUT if n == record.name
        }
        last = schema.inputs[-1].option if schema.inputs else None
        variadic = last == OpSchema.FormalParameterOption.Variadic
        if record.inputs is None:
            assert variadic
        else:
            assert not variadic or record.name == "SequenceMap"
            assert len(schema.inputs) <= record.inputs


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: f"{r.name}-{r.first}")
def test_every_later_opset_has_a_record_too(record):
    for version in range(max(record.first, OLDEST_OPSET), NEWEST_OPSET + 1):
        try:
            deprecated = onnx.defs.get_schema(record.name, version, record.domain).deprecated
        except onnx.defs.SchemaError:
            continue
        assert deprecated or find(record.domain, record.name, version) is not None, version


def test_every_operator_of_inference_has_a_record_or_a_body():
    """Missing operators can't be expressed in WebNN; a new ONNX release shows up here."""
    missing = {
        s.name
        for s in onnx.defs.get_all_schemas()
        if s.domain == ""
        and not s.deprecated
        and not s.has_function
        and not s.has_context_dependent_function
        and find("", s.name, NEWEST_OPSET) is None
    }
    assert missing == {
        "ImageDecoder", "Multinomial", "NonMaxSuppression", "NonZero", "RandomNormal",
        "RandomNormalLike", "RandomUniform", "RandomUniformLike", "RegexFullMatch", "StringConcat",
        "StringNormalizer", "StringSplit", "Unique",
    }


def test_records_of_one_operator_do_not_overlap():
    with pytest.raises(AssertionError, match="two records for  Add"):
        onnx_operator("Add", first=3)(lambda c, a, b: a)
    assert [(r.first, r.last) for r in all_records() if r.name == "Squeeze"] == [
        (1, 12), (13, NEWEST),
    ]


def test_what_transformers_exports_of_onnx_runtime_use_is_there():
    names = {r.name for r in all_records() if r.domain == MICROSOFT}
    assert names >= {
        "Attention", "BiasGelu", "DynamicQuantizeLSTM", "EmbedLayerNormalization", "FastGelu",
        "MatMulNBits", "MultiHeadAttention", "QAttention", "RotaryEmbedding",
        "SkipLayerNormalization",
    }


@pytest.mark.parametrize("record", all_records(), ids=lambda r: f"{r.domain}.{r.name}-{r.first}")
def test_functions_take_the_context_first(record):
    assert next(iter(inspect.signature(record.function).parameters)) == "c"
