"""The text of `--help`: flags under headings, each with its default."""

import shutil
import textwrap

from absl import flags

from keras_transformer.cli.flags import FLAGS, GROUPS, NumberOrNone

_PLACEHOLDERS = {
    flags.IntegerParser: "N",
    NumberOrNone: "X|none",
    flags.FloatParser: "X",
    flags.ListParser: "A,B",
}


def command_help(command: str, about: str, full: bool) -> str:
    """The help of one command.

    Args:
        command: as it is typed, such as "keras-transformer train".
        about: what it does, with examples.
        full: whether to list the flags that absl adds too.
    """
    groups = dict(GROUPS)
    if full:
        listed = {name for names in groups.values() for name in names}
        groups["absl"] = sorted(set(FLAGS) - listed)
    parts = [f"usage: {command} [--flag=value ...]", about.strip()]
    parts += ["\n".join([f"{heading}:", *map(_flag_help, groups[heading])]) for heading in groups]
    parts.append(
        "--flagfile=FILE reads flags from a file, one a line, which those of the command line "
        "replace.\n"
        "--helpfull lists absl's own flags too."
    )
    return "\n\n".join(parts) + "\n"


def _flag_help(name):
    indent = " " * 6
    usage = _filled(flag_usage(name).replace("|", "| "), "  ", indent)  # may break after a bar
    return f"{usage.replace('| ', '|')}\n{_filled(flag_text(name), indent, indent)}"


def _filled(text, first_indent, indent):
    width = min(100, shutil.get_terminal_size((100, 24)).columns)
    return textwrap.fill(
        text,
        width,
        initial_indent=first_indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )


def flag_usage(name: str) -> str:
    """A flag as it is typed, such as `--beam_size=N` or `--[no]sample`."""
    flag = FLAGS[name]
    return f"--[no]{name}" if flag.boolean else f"--{name}={_placeholder(flag)}"


def flag_text(name: str) -> str:
    """The help of a flag, with its default."""
    flag = FLAGS[name]
    text = flag.help or ""
    if isinstance(flag, flags.EnumFlag):
        text = text.removeprefix(f"<{_choices(flag)}>: ")  # absl repeats the choices
    text = text.partition(";\n    repeat this option")[0]  # absl adds this
    if flag.default not in (None, "", []) and "default: " not in text:
        text += f" (default: {str(flag.default_as_str)[1:-1]})"  # without its quotes
    return text


def _placeholder(flag):
    if isinstance(flag, flags.EnumFlag):
        return _choices(flag)
    kinds = (text for kind, text in _PLACEHOLDERS.items() if isinstance(flag.parser, kind))
    return next(kinds, "TEXT")


def _choices(flag):
    return "|".join(flag.parser.enum_values)
