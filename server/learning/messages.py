"""What is said to the child process that trains, and what it answers."""

from __future__ import annotations

from typing import ClassVar

from deuteron.tuner.codec import Document


class Train(Document, frozen=True):
    """Train the predictors of one kernel from what is in the database, and put them into ``bundle``. After ``seconds``
    the process ends, whatever it is at."""

    noun: ClassVar[str] = "request"

    database_url: str
    kernel_hash: str
    bundle: str
    seconds: float


class Learnt(Document, frozen=True):
    """A predictor that was trained. ``expected_loss`` is that of shapes that were left out, 0.03 for 3 %;
    ``nearest_loss`` that of the nearest shape there. Lookups use one that ``pays``."""

    dtype: str
    device: str
    shapes: int
    trials: int
    expected_loss: float
    nearest_loss: float
    pays: bool


class Trained(Document, frozen=True):
    """The answer. ``left_out``: why nothing was learnt of a device, dtype and toolchain. ``unavailable``: why nothing
    can be trained here, whatever is measured. ``error``: why this could not be."""

    noun: ClassVar[str] = "answer"

    kernel_name: str = ""
    learnt: tuple[Learnt, ...] = ()
    left_out: tuple[str, ...] = ()
    unavailable: str | None = None
    error: str | None = None
