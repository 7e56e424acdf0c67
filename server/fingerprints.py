"""When two submissions are the same one: an Idempotency-Key finds its job again across versions of the service."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from deuteron.tuner.codec import canonical_json

if TYPE_CHECKING:
    from .api.schemas.jobs import JobBody

# What fields that are left out meant when services began to write fingerprints. These stay as they are: a body is the
# same whatever the defaults of later versions are, and a field that they add counts only where a body sets it.
_LEFT_OUT: dict[str, object] = {"device": "cpu", "seed": 0}
_NO_BUDGET: dict[str, object] = {"trials": 50}
# Came later, and has counted in every body since.
_SETTLE: dict[str, object] = {"settle": False}


def fingerprints(body: JobBody) -> tuple[str, ...]:
    """The sha256 of a submission that is to be remembered, then those that services of before wrote of the same one."""
    said = body.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    budget = _NO_BUDGET
    if "budget" in body.model_fields_set:
        budget = body.budget.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    return tuple(_sha256({**_LEFT_OUT, **said, "budget": whole}) for whole in ({**_SETTLE, **budget}, budget))


def _sha256(document: dict[str, object]) -> str:
    return hashlib.sha256(canonical_json(document).encode()).hexdigest()
