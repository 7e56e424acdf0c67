"""What an operation does to one element, in the dialects arith and math."""

from __future__ import annotations

from ..errors import UnsupportedOp
from ..ir.core import Op
from ..ir.types import Element, Pointer, Scalar
from ..tile import elementwise as e
from .text import Writer, element_text

#: Mnemonic -> operation of floats, of signed integers, of unsigned ones.
_BINARY = {
    "add": ("arith.addf", "arith.addi", "arith.addi"),
    "sub": ("arith.subf", "arith.subi", "arith.subi"),
    "mul": ("arith.mulf", "arith.muli", "arith.muli"),
    "div": ("arith.divf", None, None),
    "int_div": (None, "arith.divsi", "arith.divui"),
    "rem": ("arith.remf", "arith.remsi", "arith.remui"),
    "and": (None, "arith.andi", "arith.andi"),
    "or": (None, "arith.ori", "arith.ori"),
    "xor": (None, "arith.xori", "arith.xori"),
    "shl": (None, "arith.shli", "arith.shli"),
    "shr": (None, "arith.shrsi", "arith.shrui"),
    "pow": ("math.powf", None, None),
    "atan2": ("math.atan2", None, None),
}
_EXTREMA = {"min": ("minnumf", "minimumf", "minsi", "minui"), "max": ("maxnumf", "maximumf", "maxsi", "maxui")}
_UNARY = {
    name: f"math.{name}" for name in ("exp", "exp2", "log", "log2", "sin", "cos", "sqrt", "rsqrt", "erf", "floor")
}
_UNARY |= {name: f"math.{name}" for name in ("ceil", "log10", "tanh", "atan", "trunc")} | {
    "round_even": "math.roundeven"
}
_ORDERED = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


def unsupported(op: Op, why: str = "") -> UnsupportedOp:
    """The error for what linalg does not have, at its place."""
    return UnsupportedOp(f"{op.mnemonic} cannot be written as linalg{why and f': {why}'}", location=op.location)


def element_operation(out: Writer, op: Op, names: list[str]) -> str:
    """Write what ``op`` does to elements called ``names``, and return the name of the result.

    Raises:
        UnsupportedOp: the dialects have nothing for it.
    """
    elem = op.operands[0].type.elem
    if isinstance(elem, Pointer):
        raise unsupported(op, "it computes with addresses that are no box of an array")
    kind, text = _kind(elem), element_text(elem)
    match op:
        case e.Compare():
            predicate = op.predicate
            if kind == 0:
                return out.define(f"arith.cmpf {_ORDERED[predicate]}, {names[0]}, {names[1]} : {text}")
            sign = "" if predicate in ("eq", "ne") else "su"[kind - 1]
            return out.define(f"arith.cmpi {sign}{predicate}, {names[0]}, {names[1]} : {text}")
        case e.Select():
            return out.define(f"arith.select {', '.join(names)} : {element_text(op.on_true.type.elem)}")
        case e.Fma():
            return out.define(f"math.fma {', '.join(names)} : {text}")
        case e.Cast():
            return _cast(out, op, names[0])
        case e.Hint():
            return names[0]
        case e.Min() | e.Max():
            spelled = _EXTREMA[op.mnemonic]
            name = spelled[int(op.propagate_nan)] if kind == 0 else spelled[kind + 1]
            return out.define(f"arith.{name} {names[0]}, {names[1]} : {text}")
        case e.Neg():
            if kind == 0:
                return out.define(f"arith.negf {names[0]} : {text}")
            return out.define(f"arith.subi {out.constant(0, text)}, {names[0]} : {text}")
        case e.Abs():
            return out.define(f"math.{'absf' if kind == 0 else 'absi'} {names[0]} : {text}")
    if isinstance(op, e.Binary) and (found := _BINARY.get(op.mnemonic, (None,) * 3)[kind]):
        return out.define(f"{found} {names[0]}, {names[1]} : {text}")
    if isinstance(op, e.Unary) and op.mnemonic in _UNARY:
        return out.define(f"{_UNARY[op.mnemonic]} {names[0]} : {text}")
    raise unsupported(op)


def _kind(elem: Scalar) -> int:
    """0 for floats, 1 for signed integers, 2 for unsigned ones and booleans."""
    return 0 if elem.is_float else 1 if elem.is_signed else 2


def _cast(out: Writer, op: e.Cast, name: str) -> str:
    source, target = op.x.type.elem, op.to
    if not isinstance(source, Scalar) or not isinstance(target, Scalar) or op.rounding != "rtne":
        raise unsupported(op, "only numbers are converted, and rounded to the nearest")
    texts = element_text(source), element_text(target)
    if texts[0] == texts[1]:
        return name
    if target.kind == "bool":
        zero = out.once(f"arith.constant {'0.0' if source.is_float else '0'} : {texts[0]}", "zero")
        compare = "arith.cmpf une" if source.is_float else "arith.cmpi ne"
        return out.define(f"{compare}, {name}, {zero} : {texts[0]}")
    signed = source.is_signed
    if source.is_float and target.is_float:
        if source.bits == target.bits:
            raise unsupported(op, f"{source} and {target} have one width")
        verb = "extf" if target.bits > source.bits else "truncf"
    elif source.is_float:
        verb = "fptosi" if target.is_signed else "fptoui"
    elif target.is_float:
        verb = "sitofp" if signed else "uitofp"
    else:
        verb = "trunci" if target.bits < source.bits else "extsi" if signed else "extui"
    return out.define(f"arith.{verb} {name} : {texts[0]} to {texts[1]}")


def number_text(value: float | bool, elem: Element) -> str:
    """A constant as MLIR writes it; infinities and NaN by their bits."""
    if isinstance(elem, Scalar) and elem.is_float:
        return _float_text(float(value), elem)
    if isinstance(elem, Scalar) and elem.kind == "bool":
        return "true" if value else "false"
    return str(int(value))


#: Width -> bits of infinity and of a NaN; bf16 has a width of its own.
_SPECIAL = {"f16": ("0x7C00", "0xFC00", "0x7E00"), "bf16": ("0x7F80", "0xFF80", "0x7FC0")}
_SPECIAL |= {"f32": ("0x7F800000", "0xFF800000", "0x7FC00000")}
_SPECIAL |= {"f64": ("0x7FF0000000000000", "0xFFF0000000000000", "0x7FF8000000000000")}


def _float_text(value: float, elem: Scalar) -> str:
    if value - value == 0:
        return f"{value:.17e}" if value else "0.0" if str(value) == "0.0" else "-0.0"
    positive, negative, nan = _SPECIAL.get(elem.code, ("0x7F", "0xFF", "0x7F"))
    return nan if value != value else positive if value > 0 else negative
