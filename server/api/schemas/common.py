"""What bodies of requests and answers are made of."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError


def _is_number(value: object) -> object:
    """Pydantic would read `"5"` and `true` as 5, and a schema that says `integer` promises that nobody does."""
    if isinstance(value, bool | str):
        raise PydanticCustomError("not_a_number", "Input should be a number")
    return value


# 5.0 is an integer for JSON Schema, so pydantic's own strict mode, which refuses it, is too strict.
# Last of the annotations: pydantic describes limits only where they stand beside the type.
JSON_NUMBER = BeforeValidator(_is_number)
Integer = Annotated[int, JSON_NUMBER]
Seed = Annotated[int, Field(ge=0, le=2**32 - 1), JSON_NUMBER]

# Documents that the tuner defines and validates; here they are passed on.
Document = dict[str, Any]
Text = Annotated[str, Field(max_length=200)]


class Body(BaseModel):
    """A request body: an unknown field is a spelling mistake, so it is refused."""

    model_config = ConfigDict(extra="forbid")
