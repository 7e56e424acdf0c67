"""Names of functions in object files and PTX."""

from __future__ import annotations

import re

#: What neither LLVM IR (unquoted) nor PTX (ISA section 4.4) takes in a name; nor does PTX take a single underscore.
_REFUSED = re.compile(r"[^a-zA-Z0-9_$]|^_$")
#: Letters that a name has at most: PTX promises to take 1,024, and LLVM makes longer names for parameters.
_LONGEST = 900


def symbol_of(name: str) -> str:
    """The symbol of a kernel called ``name``, which may be any text: what a symbol cannot have becomes its code point,
    as in ``caf_u00e9``. The symbol of a symbol is itself."""
    made = _REFUSED.sub(lambda found: f"_u{ord(found[0]):04x}", name)[:_LONGEST]
    return f"_{made}" if made[:1].isdigit() else made
