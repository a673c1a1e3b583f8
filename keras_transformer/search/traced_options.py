"""Search options of which a graph takes the numbers as tensors, so that one graph serves all."""

import dataclasses
from typing import Any

from keras_transformer.options.search import LONGEST, SearchOptions

_NEVER = 2**31 - 1  # a number of finished hypotheses that no search reaches


@dataclasses.dataclass(frozen=True)
class TracedOptions(SearchOptions):
    """Options of which some fields are tensors; the options that they come from were checked.

    Example:
        >>> options = SearchOptions(alpha=0.5, max_length=20)
        >>> traced = TracedOptions.of(options.structure(), numbers(options))
        >>> traced.beam_size, float(traced.alpha)
        (4, 0.5)
    """

    enough_finished: Any = None
    fixed_room: int | None = None

    def __post_init__(self):
        pass

    def expect_only(self, *args):
        """Accepts all fields, because the options were checked before they were traced."""

    def room(self, source_length):
        return super().room(source_length) if self.fixed_room is None else self.fixed_room

    @classmethod
    def of(
        cls, structure: SearchOptions, numbers: dict[str, Any], room: int | None = None
    ) -> "TracedOptions":
        """Returns the options of this structure and with these numbers, or tensors of them.

        Args:
            structure: result of `SearchOptions.structure`.
            numbers: values by the names in `numbers`.
            room: the positions that the search has room for, which cap all lengths. A compiler
                needs it, since the lengths are tensors; None for the longest translation.
        """
        return cls(**{**vars(structure), **numbers}, fixed_room=room)


def numbers(options: SearchOptions) -> dict[str, Any]:
    """The values that `SearchOptions.structure` leaves out, as finite numbers, by name."""
    enough, max_length = options.enough_finished, options.max_length
    return {
        "alpha": options.alpha,
        "enough_finished": _NEVER if enough is None else enough,
        "extra_length": options.extra_length,
        "max_length": 2 * LONGEST if max_length is None else max_length,
        "min_length": options.min_length,
        "temperature": options.temperature,
    }
