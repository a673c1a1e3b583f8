"""The reference: flags and fields as the code defines them, and the Python API from docstrings."""

import dataclasses
import importlib
import re
import textwrap
from collections.abc import Iterator

import griffe
from absl import flags
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from keras_transformer.cli.flags import GROUPS
from keras_transformer.cli.help import flag_text, flag_usage
from keras_transformer.cli.main import COMMANDS, PROGRAM
from keras_transformer.config import TransformerConfig
from keras_transformer.options import (
    CleaningOptions,
    ParsingOptions,
    SearchOptions,
    ServingOptions,
    TrainingOptions,
)
from keras_transformer.presets import PRESETS

RECORDS = [
    TransformerConfig,
    TrainingOptions,
    SearchOptions,
    ParsingOptions,
    CleaningOptions,
    ServingOptions,
]
# Methods that Keras and Beam call and describe.
OF_OTHERS = {
    "build",
    "call",
    "compute_mask",
    "compute_output_shape",
    "compute_output_spec",
    "get_config",
    "from_config",
    "update_state",
    "result",
    "expand",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds a page for each command and each package, and one for the records of options."""
    made = {f"reference/{name}.md": command_page(name) for name in COMMANDS}
    made["reference/options.md"] = options_page()
    made["reference/presets.md"] = presets_page()
    made |= {f"reference/api/{name}.md": page for name, page in api_pages()}
    for path, content in made.items():
        files.append(File.generated(config, path, content=content))
    return files


def command_page(name: str) -> str:
    """All flags of a command, under the headings of its `--help`."""
    module = importlib.import_module(f"keras_transformer.cli.{name.replace('-', '_')}")
    before = set(flags.FLAGS)
    module.define_flags()
    about, _, details = module.__doc__.strip().partition("\n\n")
    parts = [f"# {PROGRAM} {name}", about, _fenced_examples(details)]
    for heading, names in GROUPS.items():
        parts.append(f"## {heading}")
        for flag in names:
            parts.append(_entry(flag_usage(flag), flag, flag_text(flag)))
    # Flags belong to the process, and those of the next command may have the same names.
    for flag in set(flags.FLAGS) - before:
        delattr(flags.FLAGS, flag)
    GROUPS.clear()
    return "\n\n".join(parts) + "\n"


def options_page() -> str:
    """The fields of each record of options: type, default, meaning."""
    parts = [
        "# Records of options",
        "Every field of the model's configuration and of the options, with its type, its default "
        "and its meaning. Each is also a flag of a command, except the ids of special symbols.",
    ]
    for record in RECORDS:
        parts += [f"## {record.__name__}", record.__doc__.partition("\n")[0]]
        for field in dataclasses.fields(record):
            if "help" not in field.metadata:
                continue  # for Python alone; the docstring of the class explains it
            kind = getattr(field.type, "__name__", field.type)
            usage, anchor = (
                f"{field.name}: {kind} = {field.default!r}",
                f"{record.__name__}.{field.name}",
            )
            parts.append(_entry(usage, anchor, field.metadata["help"]))
            if choices := field.metadata["choices"]:
                parts[-1] += "\n\nOne of " + ", ".join(f"`{choice}`" for choice in choices) + "."
    return "\n\n".join(parts) + "\n"


def presets_page() -> str:
    """The fields in which each preset differs from the base model and from `train`'s defaults."""
    parts = [
        "# Presets",
        "A preset is a model and the training that goes with it. Each section lists the values "
        "that differ from the defaults of the [records of options](options.md).",
    ]
    for name, preset in PRESETS.items():
        records = {"Model": preset.model, "Training": preset.training, "Parsing": preset.parsing}
        parts.append(f"## {name}")
        for heading, fields in records.items():
            if fields:
                values = ", ".join(f"`{key}={value}`" for key, value in fields.items())
                parts.append(f"{heading}: {values}.")
    return "\n\n".join(parts) + "\n"


def api_pages() -> Iterator[tuple[str, str]]:
    """The public names of each package, each described where it is met first."""
    package = griffe.load("keras_transformer", search_paths=["."])
    modules = [package, *(module for module in package.modules.values() if module.is_init_module)]
    first_seen: dict[str, str] = {}
    for module in modules:
        names = [name for name in module.exports or () if not _target(module, name).is_module]
        if not names:
            continue
        parts = [f"# {module.path}", module.docstring.value]
        for name in sorted(names, key=str.lower):
            found, path = _target(module, name), f"{module.path}.{name}"
            _check_documented(found)
            first = first_seen.setdefault(found.path, path)
            if first != path:
                parts.append(f"## {name}\n\n[`{first}`][{first}]")
            elif found.is_attribute and len(str(found.value)) > 100:
                parts.append(f"::: {path}\n    options:\n      show_attribute_values: false")
            else:
                parts.append(f"::: {path}")
        yield module.path, "\n\n".join(parts) + "\n"


def _target(module, name):
    found = module[name]
    return found.final_target if found.is_alias else found


def _check_documented(found):
    undocumented = [found.path] if not found.has_docstring else []
    if found.is_class:
        undocumented += [
            method.path
            for name, method in found.functions.items()
            if not (name.startswith("_") or name in OF_OTHERS or method.has_docstring)
            and not any(name in base.members for base in found.mro())
        ]
    if undocumented:
        raise PluginError(f"expected docstrings, found none at {', '.join(undocumented)}")


def _fenced_examples(text):
    """Text in which a docstring's indented commands are blocks of code."""
    return "\n\n".join(
        f"```sh\n{textwrap.dedent(part)}\n```" if part.startswith("  ") else _escaped(part)
        for part in text.split("\n\n")
    )


def _entry(usage, anchor, text):
    """The section of a flag or a field."""
    return f"### `{usage}` {{ #{anchor} .flag }}\n\n{_escaped(text)}"


def _escaped(text):
    """Text whose `*`, `_` and `<` are not Markdown's, and whose flags are code."""
    signs = {ord(sign): f"\\{sign}" for sign in "*_<|"}
    code = r"(`[^`]*`|--[a-z]\w*(?:=[\w=,.\[\]]*[\w\]])?)"
    parts = re.split(code, text)  # every other one is code
    return "".join(
        f"`{part.strip('`')}`" if n % 2 else part.translate(signs) for n, part in enumerate(parts)
    )
