"""A parser for the part of GLSL that `shaders/lib` uses."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

NUMPY = {
    "float": np.float32, "int": np.int32, "uint": np.uint32, "bool": np.bool_,
    "int64_t": np.int64, "uint64_t": np.uint64,
}
VECTORS = {
    "vec2": ("float", "xy"), "vec3": ("float", "xyz"), "vec4": ("float", "xyzw"),
    "uvec2": ("uint", "xy"), "uvec4": ("uint", "xyzw"),
}

_TOKEN = re.compile(
    r"\s*(?://[^\n]*\s*)*(0x[0-9a-fA-F]+u?|\d+\.\d*(?:e[-+]?\d+)?|\d+(?:e[-+]?\d+)?u?|\w+"
    r"|<<=|>>=|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|[-+*/%&|^~!<>=?:;,.(){}\[\]])"
)
_LEVELS = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"),
    ("+", "-"), ("*", "/", "%"),
)


@dataclass
class Function:
    """A GLSL function: type of its result, (type, name) of its parameters, its statements."""

    name: str
    result: str
    parameters: list[tuple[str, str]]
    body: list[tuple]


class Parser:
    """Recursive descent into tuples: ("kind", …)."""

    def __init__(self, text: str) -> None:
        self.tokens, at = [], 0
        text = text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if not match:
                if not re.sub(r"//[^\n]*|\s", "", text[at:]):
                    break
                raise SyntaxError(f"GLSL at {text[at:at + 40]!r}")
            self.tokens.append(match.group(1))
            at = match.end()
        self.at = 0
        self.types = set(NUMPY) | set(VECTORS)

    def peek(self, ahead: int = 0) -> str:
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else ""

    def take(self, expected: str | None = None) -> str:
        token = self.peek()
        if expected is not None and token != expected:
            rest = " ".join(self.tokens[self.at : self.at + 8])
            raise SyntaxError(f"GLSL: {expected!r} expected before {rest}")
        self.at += 1
        return token

    def accept(self, token: str) -> bool:
        if self.peek() == token:
            self.at += 1
            return True
        return False

    def unit(self) -> tuple[list[Function], dict[str, tuple], dict[str, list[tuple[str, str]]]]:
        """Functions, constants {name: (type, expression)} and structures {name: fields}."""
        functions, constants, structures = [], {}, {}
        while self.peek():
            if self.accept("struct"):
                name, fields = self.take(), []
                self.take("{")
                while not self.accept("}"):
                    fields.append((self.take(), self.take()))
                    self.take(";")
                self.take(";")
                structures[name] = fields
                self.types.add(name)
            elif self.accept("const"):
                kind, name = self.take(), self.take()
                if self.accept("["):
                    self.take()
                    self.take("]")
                self.take("=")
                constants[name] = (kind, self.expression())
                self.take(";")
            else:
                result, name, parameters = self.take(), self.take(), []
                self.take("(")
                while not self.accept(")"):
                    parameters.append((self.take(), self.take()))
                    self.accept(",")
                functions.append(Function(name, result, parameters, self.block()))
        return functions, constants, structures

    def block(self) -> list[tuple]:
        if not self.accept("{"):
            return [self.statement()]
        statements = []
        while not self.accept("}"):
            statements.append(self.statement())
        return statements

    def statement(self) -> tuple:
        if self.accept("if"):
            self.take("(")
            condition = self.expression()
            self.take(")")
            then = self.block()
            return ("if", condition, then, self.block() if self.accept("else") else [])
        if self.accept("while"):
            self.take("(")
            condition = self.expression()
            self.take(")")
            return ("while", condition, self.block(), None)
        if self.accept("for"):
            self.take("(")
            first = self.statement()
            condition = self.expression()
            self.take(";")
            step = self.simple()
            self.take(")")
            return ("for", first, ("while", condition, self.block(), step))
        if self.accept("return"):
            value = self.expression()
            self.take(";")
            return ("return", value)
        precise = self.accept("precise")
        if self.peek() in self.types and self.peek(1) not in ("(", "["):
            kind, name = self.take(), self.take()
            value = self.expression() if self.accept("=") else None
            self.take(";")
            return ("declare", kind, name, value, precise)
        statement = self.simple()
        self.take(";")
        return statement

    def simple(self) -> tuple:
        if self.peek() in ("++", "--"):
            sign = self.take()[0]
            return ("assign", ("name", self.take()), f"{sign}=", ("literal", "int", np.int32(1)))
        target = self.unary()
        if self.peek() in ("=", "+=", "-=", "*=", "|=", "&=", "^=", "<<=", ">>="):
            return ("assign", target, self.take(), self.expression())
        return ("call statement", target)

    def expression(self) -> tuple:
        condition = self.binary(0)
        if not self.accept("?"):
            return condition
        yes = self.expression()
        self.take(":")
        return ("select", condition, yes, self.expression())

    def binary(self, level: int) -> tuple:
        if level == len(_LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while self.peek() in _LEVELS[level]:
            operator = self.take()
            left = ("binary", operator, left, self.binary(level + 1))
        return left

    def unary(self) -> tuple:
        if self.peek() in ("-", "~", "!"):
            return ("unary", self.take(), self.unary())
        if self.accept("("):
            value = self.expression()
            self.take(")")
        else:
            value = self.primary()
        while self.peek() in (".", "["):
            if self.take() == ".":
                value = ("field", value, self.take())
            else:
                value = ("index", value, self.expression())
                self.take("]")
        return value

    def primary(self) -> tuple:
        token = self.take()
        if token[0].isdigit():
            if token.startswith("0x") or token.isdigit() or token.endswith("u"):
                kind = "uint" if token.endswith("u") else "int"
                return ("literal", kind, NUMPY[kind](int(token.rstrip("u"), 0)))
            return ("literal", "float", np.float32(float(token)))
        if token in ("true", "false"):
            return ("literal", "bool", np.bool_(token == "true"))
        if token in self.types and self.accept("["):  # uint[8](…)
            self.take()
            self.take("]")
            token += "[]"
        if self.accept("("):
            arguments = []
            while not self.accept(")"):
                arguments.append(self.expression())
                self.accept(",")
            return ("call", token, arguments)
        return ("name", token)
