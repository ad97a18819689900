"""The text of a ``.webnn`` file as plain data: what it says, line by line, and nothing of its
meaning. Time and memory are bounded by the text's length.

    webnn_graph "name" v2 {
      inputs { x: f32[dyn("batch", 8), 4]; }
      consts { w: f32[4, 4] @weights("w"); half: f32[] @scalar(0.5); mask: u8[2] @bytes([1, 0]); }
      nodes {
        y = add(x, half, label="shift");  # comments go to the end of the line
        [left, right] = split(y, splits=2, axis=1);
        z = left;
      }
      outputs { z; right; }
    }
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import field
from typing import Any

from webnn_vk.compiler.types.data_types import MAX_DIMENSION
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import sanitize
from webnn_vk.support.token_reader import TokenReader

from .errors import GraphFileError
from .names import FOUR_BITS, LONG_TYPES, SHORT_TYPES, listed

#: Limits of a file.
MAX_TEXT_BYTES = 64 << 20
MAX_STATEMENTS = 200_000
MAX_DEPTH = 16
MAX_ITEMS = 1 << 16
MAX_DIMENSIONS = 64
MAX_NUMBER_LENGTH = 512
VERSIONS = (1, 2)

#: Our own comments: names that the format's identifiers can't spell.
_NOTE = re.compile(r'#webnn_vk: (input|output) (\S+) = (".*")[ \t\r]*(?:\n|\Z)')
_NOTE_START = "#webnn_vk:"
# Possessive: the engine keeps no state for each character of a long text.
_BLANK = re.compile(r"(?:[ \t\r\n]++|#[^\n]*+)*+")
_IDENTIFIER = re.compile(r"[A-Za-z_/$][A-Za-z0-9_./]*")
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_ESCAPE = re.compile(r'\\(["\\])')
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_BYTE = re.compile(r"[ \t\r\n]*([0-9]{1,3})[ \t\r\n]*(,|\])")
_TYPE = re.compile(r"[a-z][a-z0-9]*")


class Reference(str):
    """An identifier where a value may stand: the name of an operand."""

    __slots__ = ()


@dataclass(frozen=True)
class Dynamic:
    """A dimension that is not known before the graph is built, and how large it may be."""

    name: str
    largest: int


@dataclass(frozen=True)
class Declared:
    """An input or a constant. ``how`` is "weights", "scalar" or "bytes" with its ``value``; empty
    for an input."""

    line: int
    name: str
    data_type: str
    shape: tuple[int | Dynamic, ...]
    how: str = ""
    value: Any = None


@dataclass(frozen=True)
class Statement:
    """``results = operator(positional, name=option)``; an empty operator gives the one operand in
    ``positional`` another name."""

    line: int
    results: tuple[str, ...]
    operator: str
    positional: tuple[tuple[int, Any], ...] = ()
    options: dict[str, tuple[int, Any]] = field(default_factory=dict)


@dataclass
class Document:
    """A whole text. ``titles`` has the names that inputs and outputs really have, by kind and
    identifier, where they differ."""

    name: str = ""
    version: int = 1
    quantized: bool = False
    inputs: list[Declared] = field(default_factory=list)
    constants: list[Declared] = field(default_factory=list)
    nodes: list[Statement] = field(default_factory=list)
    outputs: list[tuple[int, str]] = field(default_factory=list)
    titles: dict[tuple[str, str], str] = field(default_factory=dict)


def parse(text: str) -> Document:
    """The parsed text; GraphFileError with the line where it doesn't follow the grammar."""
    if len(text) > MAX_TEXT_BYTES:
        raise GraphFileError(f"the text has more than {MAX_TEXT_BYTES >> 20} MiB")
    return _Reader(text).document()


class _Reader(TokenReader):
    BLANK, WORD, MOST = _BLANK, _IDENTIFIER, MAX_ITEMS

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.count = 0
        # Lines are counted up to here.
        self._counted, self._line = 0, 1

    # -- places and errors ---------------------------------------------------------------------
    @property
    def line(self) -> int:
        self._line += self.text.count("\n", self._counted, self.at)
        self._counted = self.at
        return self._line

    def fail(self, message: str, line: int | None = None) -> GraphFileError:
        return GraphFileError(message, self.line if line is None else line)

    def expected(self, what: str) -> GraphFileError:
        found = self.text[self.at : self.at + 20].split("\n")[0]
        return self.fail(f"{what} is expected, not {sanitize(found) or 'the end of the line'!r}")

    # -- tokens --------------------------------------------------------------------------------
    def string(self, what: str) -> str:
        if not self.follows('"'):
            raise self.expected(f"{what} in quotes")
        line = self.line
        if _STRING.match(self.text, self.at) is None:
            raise self.fail("a string has no end", line)
        return _ESCAPE.sub(r"\1", self.match(_STRING, what)[1:-1])

    def integer(self, what: str, low: int = 0, high: int | None = None) -> int:
        line = self.line
        number = self.number(what)
        if isinstance(number, float):
            raise self.fail(f"{what}: an integer is expected, not {number}", line)
        if number >= 10**10:
            raise self.fail(f"{what}: {str(number)[:10]}… is too large", line)
        if number < low or (high is not None and number > high):
            accepted = f"at least {low}" if high is None else f"{low} … {high}"
            raise self.fail(f"{what}: {accepted} is expected, not {str(number)[:40]}", line)
        return number

    def number(self, what: str = "a number") -> int | float:
        """Digits become numbers here only (and in lists of bytes); ``what`` names them in errors.
        """
        line = self.line
        text = self.match(_NUMBER, what)
        if len(text) > MAX_NUMBER_LENGTH:
            raise self.fail(f"{what}: a number of {len(text)} characters", line)
        if re.fullmatch("-?[0-9]+", text):
            return int(text)
        number = float(text)
        if number in (float("inf"), float("-inf")):
            raise self.fail(f"{what}: {text[:40]} is too large for a double", line)
        return number

    # -- the document --------------------------------------------------------------------------
    def document(self) -> Document:
        document = Document(titles=self._titles())
        if not self.keyword("webnn_graph"):
            raise self.expected("'webnn_graph'")
        document.name = self.string("the graph's name")
        line = self.line
        self.expect("v")
        document.version = self.integer("the version")
        if document.version not in VERSIONS:
            raise self.fail(f"version {document.version} is not one of {VERSIONS}", line)
        document.quantized = self.accept("@quantized")
        self.expect("{")
        blocks: dict[str, Callable[[Document], None]] = {
            "inputs": self._input, "consts": self._constant, "nodes": self._node,
            "outputs": self._outputs,
        }
        while not self.accept("}"):
            name = next((n for n in blocks if self.keyword(n)), None)
            if name is None:
                raise self.expected(f"one of {listed(blocks)} or '}}'")
            self.expect("{")
            while not self.accept("}"):
                self.count += 1
                if self.count > MAX_STATEMENTS:
                    raise self.fail(f"more than {MAX_STATEMENTS} declarations and nodes")
                blocks[name](document)
        if self.at < len(self.text):
            raise self.expected("the end of the file")
        return document

    def _titles(self) -> dict[tuple[str, str], str]:
        """The contents of our comments before everything else."""
        titles = {}
        at, line = 0, 1
        while self.text.startswith(_NOTE_START, at):
            found = _NOTE.match(self.text, at)
            try:
                if found is None:
                    raise ValueError
                kind, name, title = found.groups()
                titles[kind, name] = json.loads(title)
            except ValueError:
                note = f'{_NOTE_START} input x = "name"'
                raise GraphFileError(f"a comment of ours has to be as in {note}", line) from None
            at, line = found.end(), line + 1
        return titles

    def _declared(self, what: str) -> tuple[int, str, str, tuple[int | Dynamic, ...]]:
        """Line, name, data type and shape of an input or a constant."""
        line = self.line
        name = self.match(_IDENTIFIER, what)
        self.expect(":")
        return line, name, *self._type()

    def _input(self, document: Document) -> None:
        declared = Declared(*self._declared("an input's name"))
        self.expect(";")
        document.inputs.append(declared)

    def _constant(self, document: Document) -> None:
        line, name, data_type, shape = self._declared("a constant's name")
        if any(isinstance(d, Dynamic) for d in shape):
            raise self.fail(f"constant {name}: its dimensions have to be numbers", line)
        annotations: dict[str, Callable[[], Any]] = {
            "weights": lambda: self.string("the name of a tensor"),
            "scalar": lambda: self.number(f"constant {name}"), "bytes": self._bytes,
        }
        how, value = "", None
        while not self.accept(";"):
            if how:
                raise self.fail(f"constant {name}: more than one annotation")
            how = next((a for a in annotations if self.accept(f"@{a}")), "")
            if not how:
                raise self.expected("@weights, @scalar, @bytes or ';'")
            self.expect("(")
            value = annotations[how]()
            self.expect(")")
        if not how:
            how, value = "weights", name
        document.constants.append(Declared(line, name, data_type, shape, how, value))

    def _bytes(self) -> bytes:
        self.expect("[")
        made = bytearray()
        if self.accept("]"):
            return b""
        while True:
            found = _BYTE.match(self.text, self.at)
            if found is None or int(found.group(1)) > 255:
                self.skip()  # to its line
                raise self.expected("a byte, 0 … 255, and ',' or ']'")
            made.append(int(found.group(1)))
            self.at = found.end()
            if found.group(2) == "]":
                self.skip()
                return bytes(made)

    def _type(self) -> tuple[str, tuple[int | Dynamic, ...]]:
        line = self.line
        short = self.match(_TYPE, "a data type")
        if short in FOUR_BITS:
            raise self.fail(f"{FOUR_BITS[short]} is no data type of the WebNN draft", line)
        if short not in LONG_TYPES:
            raise self.fail(
                f"{sanitize(short)} is no data type; one of {listed(SHORT_TYPES.values())}", line
            )
        self.expect("[")
        return LONG_TYPES[short], tuple(self.items("]", self._dimension, MAX_DIMENSIONS))

    def _dimension(self) -> int | Dynamic:
        if not self.keyword("dyn"):
            return self.integer("a dimension")
        self.expect("(")
        name = self.string("a dimension's name")
        self.expect(",")
        largest = self.integer("a dimension's largest size", 1, MAX_DIMENSION)
        self.expect(")")
        return Dynamic(name, largest)

    def _outputs(self, document: Document) -> None:
        line = self.line
        document.outputs.append((line, self.match(_IDENTIFIER, "an output's name")))
        if not self.accept(",") and not self.accept(";") and not self.follows("}"):
            # The semicolon may be left out; then a name, or the end of the block, has to follow.
            if _IDENTIFIER.match(self.text, self.at) is None:
                raise self.expected("',' or ';'")

    def _node(self, document: Document) -> None:
        line = self.line
        if self.accept("["):
            results = tuple(self.items("]", lambda: self.match(_IDENTIFIER, "a result's name")))
            if not results:
                raise self.fail("a node without results", line)
        else:
            results = (self.match(_IDENTIFIER, "a result's name or '['"),)
        self.expect("=")
        name = self.match(_IDENTIFIER, "an operator or an operand")
        if not self.accept("("):
            self.expect(";")
            document.nodes.append(Statement(line, results, "", ((line, Reference(name)),)))
            return
        positional: list[tuple[int, Any]] = []
        options: dict[str, tuple[int, Any]] = {}
        self.items(")", lambda: self._argument(positional, options))
        self.expect(";")
        document.nodes.append(Statement(line, results, name, tuple(positional), options))

    def _argument(
        self, positional: list[tuple[int, Any]], options: dict[str, tuple[int, Any]]
    ) -> None:
        line = self.line
        value = self._value(0)
        if not isinstance(value, Reference) or not self.accept("="):
            positional.append((line, value))
        elif value in options:
            raise self.fail(f"{value} is given twice", line)
        else:
            options[str(value)] = line, self._value(0)

    def _value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise self.fail(f"values are nested more than {MAX_DEPTH} deep")
        if self.follows('"'):
            return self.string("a string")
        if self.accept("["):
            return self.items("]", lambda: self._value(depth + 1))
        if self.accept("{"):
            return dict(self.items("}", lambda: self._entry(depth + 1)))
        name = _IDENTIFIER.match(self.text, self.at)
        if name is None:
            return self.number()
        word = self.match(_IDENTIFIER, "a value")
        literals = {"true": True, "false": False, "null": None}
        return literals[word] if word in literals else Reference(word)

    def _entry(self, depth: int) -> tuple[str, Any]:
        key = self.string("a key") if self.follows('"') else self.match(_IDENTIFIER, "a key")
        self.expect(":")
        return key, self._value(depth)
