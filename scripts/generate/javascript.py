"""The operators for the npm package, from the records: js/lib/operators.js, js/operators.d.ts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT
from webnn_vk.bridge.names import camel_case
from webnn_vk.compiler.ops import OPERATORS, Operator
from webnn_vk.compiler.ops import arguments as kinds
from webnn_vk.compiler.ops.record import Parameter
from webnn_vk.compiler.types.data_types import ALL_TYPES

#: Arguments without [EnforceRange] in the IDL: numbers wrap around.
WRAPS = {("cumulative_sum", "axis"), ("tile", "repetitions")}
#: The converter in js/lib/webidl.js and the TypeScript type of each marker.
_CONVERTERS: dict[Any, tuple[str, str]] = {
    kinds.Operand: ("operand", "MLOperand"),
    kinds.Operands: ("operands", "Iterable<MLOperand>"),
    kinds.U32: ("unsignedLong", "number"),
    kinds.I32: ("long", "number"),
    kinds.Bool: ("boolean", "boolean"),
    kinds.Number: ("number", "MLNumber"),
    kinds.Double: ("double", "number"),
    kinds.Shape: ("unsignedLongs", "Iterable<number>"),
    kinds.U32OrShape: ("unsignedLongOrLongs", "number | Iterable<number>"),
    kinds.DataTypeName: ("dataType", "MLOperandDataType"),
    kinds.SequenceOf(kinds.U32): ("unsignedLongs", "Iterable<number>"),
    kinds.SequenceOf(kinds.Double): ("floats", "Iterable<number>"),
}
_HEAD = "// Written by `python -m scripts.generate javascript` from the operators' records.\n"


def _of(operator: Operator, parameter: Parameter) -> tuple[Any, str]:
    """Converter (or an enumeration's values, in a list of one for a sequence) and type."""
    argument = parameter.argument
    if isinstance(argument, kinds.Enum):
        return list(argument.values), " | ".join(f"'{value}'" for value in argument.values)
    if isinstance(argument, kinds.SequenceOf) and isinstance(argument.item, kinds.Enum):
        values = " | ".join(f"'{value}'" for value in argument.item.values)
        return [list(argument.item.values)], f"Iterable<{values}>"
    converter, type = _CONVERTERS[argument]
    if (operator.name, parameter.name) in WRAPS:
        converter = converter.replace("unsignedLong", "wrappedLong")
    return converter, type


def _script() -> str:
    lines = [
        _HEAD,
        "// Per operator: arguments with their converters (webidl.js), options with theirs, and",
        "// whether it returns a sequence. A list instead of a converter: an enumeration's values;",
        "// a list in a list: a sequence of them.",
        "export const DATA_TYPES = " + json.dumps(ALL_TYPES) + ";",
        "",
        "export const OPERATORS = {",
    ]
    for operator in OPERATORS.values():
        arguments, options = {}, {}
        for p in operator.parameters:
            (options if p.keyword else arguments)[camel_case(p.name)] = _of(operator, p)[0]
        row = [arguments, dict(sorted(options.items())), operator.many]
        lines.append(f"  {camel_case(operator.name)}: {json.dumps(row)},")
    return "\n".join([*lines, "};", ""])


def _types() -> str:
    lines = [
        _HEAD,
        "import type { MLNumber, MLOperand, MLOperandDataType } from './index.js';",
        "",
        "export interface MLOperators {",
    ]
    for operator in OPERATORS.values():
        arguments = [
            f"{camel_case(p.name)}: {_of(operator, p)[1]}"
            for p in operator.parameters if not p.keyword
        ]
        options = [
            f"{camel_case(p.name)}?: {_of(operator, p)[1]}"
            for p in operator.parameters if p.keyword
        ]
        options.append("label?: string")
        returned = "MLOperand[]" if operator.many else "MLOperand"
        doc = operator.doc.splitlines()[0]
        lines += [
            f"  /** {doc} */",
            f"  {camel_case(operator.name)}(",
            f"    {', '.join(arguments)},",
            f"    options?: {{ {'; '.join(options)} }},",
            f"  ): {returned};",
        ]
    return "\n".join([*lines, "}", ""])


def files() -> dict[Path, str]:
    return {
        ROOT / "js" / "lib" / "operators.js": _script(),
        ROOT / "js" / "operators.d.ts": _types(),
    }
