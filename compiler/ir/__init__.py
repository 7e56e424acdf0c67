"""The SSA core shared by tile IR and GPU IR."""

from .builder import Builder
from .core import (
    REGISTRY,
    Attribute,
    Block,
    Effect,
    FieldKind,
    Function,
    FunctionParameter,
    Op,
    Value,
    uses,
)
from .parser import parse_function
from .printer import print_function
from .types import SCALARS, Element, Pointer, Scalar, Tile, parse_element, parse_type
from .verify import verify

__all__ = [
    "REGISTRY",
    "SCALARS",
    "Attribute",
    "Block",
    "Builder",
    "Effect",
    "Element",
    "FieldKind",
    "Function",
    "Op",
    "FunctionParameter",
    "Pointer",
    "Scalar",
    "Tile",
    "Value",
    "parse_element",
    "parse_function",
    "parse_type",
    "print_function",
    "uses",
    "verify",
]
