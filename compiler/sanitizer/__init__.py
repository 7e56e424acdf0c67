"""The sanitizer: kernels run program by program under the interpreter, and what they may not do is reported.

Begin reading at ``session.py``. What is looked for, and what is not: ``docs/sanitizer.md``.
"""

from .findings import Finding, FindingKind, Report, SourcePlace
from .program import EndlessWait
from .session import Sanitizer, sanitized

__all__ = ["EndlessWait", "Finding", "FindingKind", "SourcePlace", "Report", "Sanitizer", "sanitized"]
