"""Sections of our docstrings as the reader of docstrings knows them."""

import re

import griffe


class Sections(griffe.Extension):
    """Reads `Example:` as the section of examples, and `Call arguments:` as a list."""

    def on_object(self, *, obj: griffe.Object, **_) -> None:
        """Rewrites the docstring of an object as it is loaded."""
        if obj.docstring:
            text = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
            arguments = r"^Call arguments:\n((?:    .*\n|\n)*)"
            obj.docstring.value = re.sub(arguments, _as_list, text, flags=re.MULTILINE)


def _as_list(found):
    """The arguments of a call, one a line and its continuations further in, as Markdown."""
    items = re.sub(r"^    (\w+):", r"- **`\1`**:", found[1], flags=re.MULTILINE)
    return f"**Call arguments:**\n\n{items.rstrip()}\n\n"
