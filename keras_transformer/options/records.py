"""Frozen dataclasses with checked fields, for the model's configuration and options."""

import dataclasses
import math
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, get_type_hints

from keras_transformer.errors import Unsupported, UserError

LARGEST = 2**31 - 1  # largest 32-bit integer
LARGEST_FLOAT = 3.4e38  # about the largest 32-bit float


def field(
    default: Any, description: str, choices: tuple[str, ...] = (), largest: int = LARGEST
) -> Any:
    """Makes a field with a default, and a description that becomes the help of its flag.

    A field of type `str` may list `choices`, which also restrict its flag. A field of type `int` is
    at most `largest`.
    """
    metadata = {"help": description, "choices": choices, "largest": largest}
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Record:
    """A dataclass that refuses values of the wrong type.

    Whoever uses a record lists the fields that it supports, and refuses the others by
    `expect_only`.

    Raises:
        UserError: a value has the wrong type, or is not among the choices. An integer is accepted
            as a float.
    """

    def __post_init__(self):
        for name, kind in get_type_hints(type(self)).items():
            value = getattr(self, name)
            if kind in (float, float | None) and type(value) is int:
                self.expect(name, abs(value) <= LARGEST_FLOAT, f"at most {LARGEST_FLOAT}")
                value = float(value)
                object.__setattr__(self, name, value)
            if isinstance(value, float) and not math.isfinite(value):
                raise UserError(f"{name} must be finite: found {value}")
            if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
                expected = getattr(kind, "__name__", str(kind))
                raise UserError(f"{name} must be {expected}: found {value!r}")
        for field_ in dataclasses.fields(self):
            value, largest = getattr(self, field_.name), field_.metadata.get("largest", LARGEST)
            if type(value) is int:
                self.expect(field_.name, value <= largest, f"at most {largest}")
            elif type(value) is float:
                in_32_bits = abs(value) <= LARGEST_FLOAT
                self.expect(field_.name, in_32_bits, f"at most {LARGEST_FLOAT}")
            if choices := field_.metadata.get("choices"):
                is_choice = getattr(self, field_.name) in choices
                self.expect(field_.name, is_choice, f"one of {', '.join(choices)}")

    def expect(self, name: str, holds: bool, expected: str) -> None:
        """Raises `UserError` unless a condition on a field holds."""
        if not holds:
            raise UserError(f"{name} must be {expected}: found {getattr(self, name)}")

    def expect_only(
        self,
        supported: Collection[str],
        by: str,
        advice: str,
        choices: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    ) -> None:
        """Raises `Unsupported` if a field has a value that the user of the record would ignore.

        Args:
            supported: the fields that may have any value. All others must have their default, so
                a new field is refused until it is listed.
            by: the engine, exporter or search that uses the record, such as "CTranslate2".
            advice: what to do about another value, such as "leave it out".
            choices: the supported values of further fields.
        """
        for field_ in dataclasses.fields(self):
            name, value = field_.name, getattr(self, field_.name)
            values = choices.get(name, (field_.default,))
            if name not in supported and value not in values:
                only = f", only {', '.join(choices[name])}" if name in choices else ""
                raise Unsupported(by, f"{name}={value}{only}", advice)
