"""What bodies of requests and answers are made of."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
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


# Each is described in the event loop, which takes seconds for the 400,000 that a body can have.
_MOST_FAULTS = 1000


class Body(BaseModel):
    """A request body: an unknown field is a spelling mistake, so it is refused."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="wrap")
    @classmethod
    def _count_faults(cls, value: object, validate: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return validate(value)
        except ValidationError as error:
            if error.error_count() <= _MOST_FAULTS:
                raise
            raise PydanticCustomError(
                "too_many_faults", "{count} values are wrong, or names unknown", {"count": error.error_count()}
            ) from None
