"""The sanitizer: kernels run program by program under the interpreter, and what they may not do is reported.

Begin reading at ``session.py``. What is looked for, and what is not: ``docs/sanitizer.md``.
"""

from .findings import Finding, FindingKind, Report, SourcePlace
from .session import Sanitizer, sanitized
from .waiting import EndlessWait

__all__ = ["EndlessWait", "Finding", "FindingKind", "SourcePlace", "Report", "Sanitizer", "sanitized"]
