"""A command as `cli.main.run` runs it: its work, its help, and how it starts."""

import dataclasses
from collections.abc import Callable, Sequence

from absl import flags


@dataclasses.dataclass(frozen=True)
class Command:
    """A command: the function that does its work, and how it starts.

    Attributes:
        main: does the work; the flags are in `flags.FLAGS`.
        about: the beginning of `--help`: one line on the command, then examples.
        parse: reads the command line into `flags.FLAGS`; returns the arguments that are no flags.
        needs_tensorflow: whether this run needs TensorFlow; called after `parse`.
        before_tensorflow: called just before TensorFlow is imported.
    """

    main: Callable[[], None]
    about: str | None
    parse: Callable[[Sequence[str]], Sequence[str]] = flags.FLAGS
    needs_tensorflow: Callable[[], bool] = lambda: True
    before_tensorflow: Callable[[], None] = lambda: None
