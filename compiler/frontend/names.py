"""Names of the scope that no program can write: what early exits leave behind."""

from __future__ import annotations

#: Whether control has left this place, by whatever exit: False, True, or a run-time i1.
LEFT = "<left>"
#: Whether it left by return, and with what value.
RETURNED = "<returned>"
VALUE = "<returned value>"
#: Whether it left the innermost loop by break.
BROKE = "<broke>"
#: Names that have a value only where nobody left by break or continue.
DOUBTFUL = "<doubtful>"

FLAGS = (LEFT, RETURNED, BROKE)
#: All of them.
HIDDEN = frozenset({*FLAGS, VALUE, DOUBTFUL})
