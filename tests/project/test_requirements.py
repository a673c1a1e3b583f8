"""The wheel requires what the package imports, and a checkout also its extras."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions

import pytest
from check_versions import VERSIONS, paths_of_tests
from helpers import ROOT
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from keras_transformer.private_names import PRIVATE_NAMES

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
OPTIONAL = {
    *EXTRAS["datasets"],
    *EXTRAS["keras-nlp"],
    *EXTRAS["languages"],
    *EXTRAS["opennmt"],
    *EXTRAS["serve"],
}
APART = EXTRAS["beam"]  # needs older versions of some packages than the others
NOT_IMPORTED = {"tensorboard"}  # `tf.summary` needs it
OF_OTHERS = {"numpy", "protobuf"}  # requirements of TensorFlow
# Each minor version of these may change what we use: private names, or names of TensorFlow, whose
# packages come out together.
NARROW = {entry.library.split()[0] for entry in PRIVATE_NAMES} | {
    "tensorflow",
    "tensorflow-serving-api",
    "tensorboard",
}
OF_USERS = {"jax", "torch"}  # imported only where a user has chosen or brought them


def lines_of(name):
    lines = (ROOT / name).read_text().splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def names(requirements):
    return {re.split(r"[=<>[]", requirement)[0] for requirement in requirements}


def imported():
    """The distributions that the package imports, anywhere."""
    found = set()
    for path in (ROOT / "keras_transformer").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add(node.module.split(".")[0])
    found -= {*sys.stdlib_module_names, "keras_transformer"}
    # `google` is a namespace that several distributions share.
    providers = {**packages_distributions(), "google": ["protobuf"], "keras_nlp": ["keras-nlp"]}
    return {providers.get(module, [module])[0].lower().replace("_", "-") for module in found}


def test_the_wheel_requires_what_it_imports_and_extras_what_is_optional():
    required = names(PROJECT["dependencies"])
    spelled = {name.replace("_", "-") for name in required | names({*OPTIONAL, *APART})}
    assert imported() - OF_OTHERS - OF_USERS == spelled - NOT_IMPORTED
    assert not required & names(OPTIONAL)


def test_the_site_has_a_file_of_what_its_extra_requires():
    assert lines_of("requirements-docs.txt") == {*EXTRAS["docs"]}


def test_a_checkout_has_what_the_wheel_and_its_extras_require():
    needed = {*PROJECT["dependencies"], *OPTIONAL, *EXTRAS["test"][1:]}
    assert EXTRAS["test"][0] == "keras-transformer[datasets,keras-nlp,languages,opennmt,serve]"
    assert lines_of("requirements.txt") | lines_of("requirements-test.txt") == needed


def range_between(oldest: str, newest: str, is_narrow: bool) -> SpecifierSet:
    """From the oldest version to the newest one's minor version, or to its major version."""
    major, minor, *_ = map(int, newest.split("."))
    return SpecifierSet(f">={oldest},<{f'{major}.{minor + 1}' if is_narrow else major + 1}")


@pytest.mark.parametrize("name", VERSIONS)
def test_a_range_is_the_one_that_make_test_versions_tests(name):
    required = (*PROJECT["dependencies"], *EXTRAS["serve"])
    [requirement] = (each for each in map(Requirement, required) if each.name == name)
    assert requirement.specifier == range_between(*VERSIONS[name], name in NARROW)


def test_ranges_end_where_nothing_was_tested():
    assert range_between("2.20.0", "2.21.1", is_narrow=True) == SpecifierSet("<2.22,>=2.20")
    assert range_between("1.0.0", "1.10.0", is_narrow=False) == SpecifierSet("<2,>=1")
    assert range_between("1.0.0", "1.10.0", is_narrow=False) != SpecifierSet("<2,>=1.1")


def test_every_library_with_a_range_is_tested_at_both_ends():
    required = (*PROJECT["dependencies"], *EXTRAS["serve"])
    assert names(required) == {*VERSIONS}
    assert paths_of_tests()
