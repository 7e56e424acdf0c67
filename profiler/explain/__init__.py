"""A kernel before it runs: what its stages are, which line became what, and what its resources allow.

Begin reading at ``page.py``.
"""

from .instructions import instruction_mix
from .occupancy import Occupancy, occupancy
from .page import explain_page, static_profile

__all__ = ["Occupancy", "explain_page", "instruction_mix", "occupancy", "static_profile"]
