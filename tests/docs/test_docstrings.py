"""Every example in a docstring runs, and prints what it says."""

import doctest
import importlib
import inspect
import pkgutil
import re
from importlib.util import find_spec

import pytest
from docstring_world import World

import keras_transformer as kt

# Their examples train a model, or compile a search.
SLOW = [
    "keras_transformer.training.cost",
    "keras_transformer.data.batches",
    "keras_transformer.search.scoring",
    "keras_transformer.search.steps",
    "keras_transformer.export.saved_model",
    "keras_transformer.importers.m2m100",
    "keras_transformer.importers.marian",
    "keras_transformer.importers.opennmt",
    "keras_transformer.parsing.parser",
    "keras_transformer.training.step",
    "keras_transformer.translator",
]
NEEDS_BEAM = ["keras_transformer.beam.translate_files", "keras_transformer.beam.translate_text"]
MODULES = [
    module.name
    for module in pkgutil.walk_packages(kt.__path__, "keras_transformer.")
    if not module.name.endswith("__main__")
    and (find_spec("apache_beam") or module.name not in NEEDS_BEAM)
]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("world"))


def examples(name):
    """The docstrings of a module that have examples."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    return [test for test in finder.find(importlib.import_module(name)) if test.examples]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in MODULES],
)
def test_examples_of_a_module(name, world, tmp_path, monkeypatch):
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    output = []
    for number, test in enumerate(examples(name)):
        # A name is first the module's own (there are two functions `score`), then the package's.
        source = "".join(example.source for example in test.examples)
        test.globs = {**world.names(source), **test.globs}
        monkeypatch.chdir(world.files_in(tmp_path / str(number)))
        runner.run(test, out=output.append)
    assert not runner.failures, "".join(output)


@pytest.mark.parametrize("name", MODULES)
def test_no_example_is_overlooked(name):
    source = inspect.getsource(importlib.import_module(name))
    written = len(re.findall(r"^ *>>> ", source, re.MULTILINE))
    assert sum(len(test.examples) for test in examples(name)) == written
