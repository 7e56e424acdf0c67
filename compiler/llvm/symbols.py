"""Names of functions in object files and PTX."""

from __future__ import annotations


def symbol_of(name: str) -> str:
    """The symbol of a kernel called ``name``: Python's names have letters that neither LLVM IR (unquoted) nor PTX (ISA
    section 4.4) take; these become their code points, as in ``caf_u00e9``."""
    return "".join(letter if letter.isascii() else f"_u{ord(letter):04x}" for letter in name)
