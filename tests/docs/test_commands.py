"""The commands on the pages have flags and values that the commands take."""

import importlib
import re
import shlex

import pytest
from absl import flags
from helpers import ROOT

from keras_transformer.cli.flags import GROUPS
from keras_transformer.cli.main import COMMANDS

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = re.compile(r"^    .*\n", re.MULTILINE)
COMMAND = re.compile(rf"keras-transformer ({'|'.join(COMMANDS)}) ([^<>|#\n]*)")


def commands(text):
    """The commands in the indented blocks of a page: the name and the flags of each."""
    block = re.sub(r"\\\n\s*", " ", "".join(BLOCKS.findall(text)))
    for name, rest in COMMAND.findall(block):
        words = shlex.split(rest.partition(" -- ")[0])
        yield name, [word for word in words if word.startswith("--")]


def mistake(name, given):
    """Returns the error that a command raises for its flags; None if it takes them."""
    before = set(flags.FLAGS)
    importlib.import_module(f"keras_transformer.cli.{name.replace('-', '_')}").define_flags()
    try:
        flags.FLAGS([name, *given])
    except flags.Error as error:
        return str(error)
    finally:
        flags.FLAGS.unparse_flags()
        for flag in set(flags.FLAGS) - before:
            delattr(flags.FLAGS, flag)
        GROUPS.clear()


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_the_commands_of_a_page_have_flags_that_exist(page):
    for name, given in commands(page.read_text()):
        if not any(flag.startswith("--runner=") for flag in given):  # those of Beam exist too
            assert mistake(name, given) is None, (name, given)


def test_a_flag_that_does_not_exist_is_found():
    text = "    keras-transformer train --steps=9 \\\n        --no_such=1 < a > b\n"
    [(name, given)] = commands(text)
    assert (name, given) == ("train", ["--steps=9", "--no_such=1"])
    assert "no_such" in mistake(name, given)
    assert "positions" in mistake("train", ["--positions=none"])
    assert mistake("train", ["--steps=9", "--positions=rotary"]) is None
