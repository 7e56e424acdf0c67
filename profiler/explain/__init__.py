"""A kernel before it runs: what its stages are, which line became what, and what its resources allow.

Begin reading at ``page.py``.
"""

from .instructions import instruction_mix
from .page import explain_page, static_profile

__all__ = ["explain_page", "instruction_mix", "static_profile"]
