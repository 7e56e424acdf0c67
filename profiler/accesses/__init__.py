"""What kernels do to memory, element by element: recorded under the interpreter, counted, and shown on one page.

Begin reading at ``recorder.py``. What the numbers mean: ``analysis.py`` and ``docs/looking-into-kernels.md``.
"""

from .page import accesses_page
from .record import AccessRecord, RecordedArray, RecordedLaunch, Wanted
from .recorder import recorded

__all__ = ["AccessRecord", "RecordedArray", "RecordedLaunch", "Wanted", "accesses_page", "recorded"]
