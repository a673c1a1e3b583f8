"""Sections of our docstrings as the reader of docstrings knows them."""

import re

import griffe


class Sections(griffe.Extension):
    """Reads `Example:` as the section of examples, and `Call arguments:` as a list.

    Arguments that share a line, such as `gamma, beta: weights.`, get one each.
    """

    def on_object(self, *, obj: griffe.Object, **_) -> None:
        """Rewrites the docstring of an object as it is loaded."""
        if obj.docstring:
            text = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
            text = re.sub(r"^Args:\n((?:    .*\n|\n)*)", _one_a_line, text, flags=re.MULTILINE)
            arguments = r"^Call arguments:\n((?:    .*\n|\n)*)"
            obj.docstring.value = re.sub(arguments, _as_list, text, flags=re.MULTILINE)


def _one_a_line(found):
    """The section `Args:`, in which each argument has a line, and its continuations, of its own."""
    shared = r"^    ((?:\w+, )+\w+):(.*\n(?:     .*\n)*)"

    def entries(found):
        return "".join(f"    {name}:{found[2]}" for name in found[1].split(", "))

    return re.sub(shared, entries, found[0], flags=re.MULTILINE)


def _as_list(found):
    """The arguments of a call, one a line and its continuations further in, as Markdown."""
    items = re.sub(r"^    ([\w, ]+):", r"- **`\1`**:", found[1], flags=re.MULTILINE)
    return f"**Call arguments:**\n\n{items.rstrip()}\n\n"
