"""Private names of libraries are declared in one module, and the installed versions have them."""

import ast
import functools
import importlib
import inspect
import re
import sys
import textwrap
from importlib.metadata import version

import pytest
from helpers import ROOT

from keras_transformer.private_names import PRIVATE_NAMES, PrivateNames

PACKAGE = ROOT / "keras_transformer"
MODULE = "private_names.py"
DECLARED = {name for entry in PRIVATE_NAMES for name in entry.names}
# Documented in spite of their underscore: of named tuples, of `os`, of `TrackableResource`.
DOCUMENTED = {"_asdict", "_replace", "_exit", "_create_resource"}
# Modules that libraries keep to themselves: `keras.src`, `tensorflow.python`.
PRIVATE_MODULES = {"src", "python"}
GETTERS = {"getattr", "hasattr", "setattr"}


def owner_of(entry: PrivateNames):
    module, _, name = entry.owner.partition(":")
    owner = importlib.import_module(module)
    return getattr(owner, name) if name else owner


def missing(entry: PrivateNames) -> str:
    """A sentence about the names that the installed version lacks; empty if it has all."""
    library, read_in = entry.library.split()
    what = f"{library} {version(library)} has no {entry.owner} with"
    lacks = f"which {read_in} had. It breaks {entry.use}. Change keras_transformer/{MODULE} and"
    remedy = f"what uses it, or allow only older versions of {library} in pyproject.toml"
    try:
        owner = owner_of(entry)
    except (ImportError, AttributeError):
        return f"{what} {', '.join(entry.names)}, {lacks} {remedy}"
    # An instance has attributes that its class has not: `self.name = ...`.
    source = inspect.getsource(owner)
    gone = [
        name
        for name in entry.names
        if not hasattr(owner, name) and not re.search(rf"\bself\.{name}\b", source)
    ]
    return f"{what} {', '.join(gone)}, {lacks} {remedy}" if gone else ""


@pytest.mark.parametrize("entry", PRIVATE_NAMES, ids=lambda entry: entry.owner)
def test_the_installed_version_has_the_names(entry):
    assert not missing(entry)


@pytest.mark.parametrize("owner", ["keras:Layer", "keras:NoLayer", "keras.no_module"])
def test_a_name_that_an_upgrade_removes_is_explained(owner):
    entry = PrivateNames("keras 3.15.1", owner, ("_gone",), "saving models", "none")
    assert re.fullmatch(
        rf"keras \S+ has no {owner} with _gone, which 3.15.1 had. It breaks saving models. "
        r"Change keras_transformer/private_names.py and what uses it, or allow only older "
        r"versions of keras in pyproject.toml",
        missing(entry),
    )


def own_names(tree: ast.AST) -> set[str]:
    """The names that a module defines, as functions, classes, variables, fields, attributes."""
    own = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id in ("self", "cls")
        ):
            own.add(node.attr)
    return own


def private_uses(source: str, own: set[str]) -> set[str]:
    """The private names that a module uses and that the package does not define.

    They are attributes, also by `getattr`, and imported modules.
    """
    used = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            used.add(node.attr)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in GETTERS:
            used |= {each.value for each in node.args if isinstance(each, ast.Constant)}
        elif isinstance(node, ast.ImportFrom | ast.Import):
            modules = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom):
                used |= {*modules}
                modules = [node.module]
            for module in modules:
                if any(part in PRIVATE_MODULES or is_private(part) for part in module.split(".")):
                    used.add(module)
    used = {name for name in used if isinstance(name, str)}
    return {name for name in used if "." in name or is_private(name)} - own - DOCUMENTED


def is_private(name: str) -> bool:
    return re.match("_[^_]", name) is not None  # `_` is the name of what is not used


def uses_in_the_package():
    sources = {
        str(path.relative_to(PACKAGE)): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))
    }
    own = set().union(*(own_names(ast.parse(source)) for source in sources.values())) - DECLARED
    return {(file, name) for file, text in sources.items() for name in private_uses(text, own)}


def test_other_modules_only_override_declared_private_names():
    overridden = {*overrides()}
    undeclared = {(file, name) for file, name in overridden if name not in DECLARED}
    found = undeclared | (uses_in_the_package() - overridden)
    found = {(file, name) for file, name in found if file != MODULE}
    assert not found, f"private names of libraries belong into keras_transformer/{MODULE}"


def test_private_names_are_found_in_all_forms():
    source = textwrap.dedent("""
        import tensorflow.python.ops
        from keras import _tf_keras
        from keras.src.backend import set_keras_mask
        from keras_transformer.files import open_regular

        class Layer(keras.Layer):
            def _mine(self):
                self._mine, self.__dict__, pair._replace(a=1), keras.ops.add
                return layer._flatten_layers(), getattr(spec, "_value_specs")
    """)
    assert private_uses(source, own_names(ast.parse(source))) == {
        "tensorflow.python.ops",
        "_tf_keras",
        "keras.src.backend",
        "_flatten_layers",
        "_value_specs",
    }


def overrides():
    """The private names of libraries that classes of the package define anew, with their file."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if path.name == "__main__.py" or path.parent.name == "beam":  # Beam is installed apart
            continue
        module = importlib.import_module(name.removesuffix(".__init__"))
        for kind in vars(module).values():
            if isinstance(kind, type) and kind.__module__ == module.__name__:
                for private in overridden_by(kind):
                    yield str(path.relative_to(PACKAGE)), private


@functools.cache
def source_of(kind: type) -> str:
    return inspect.getsource(kind)


def overridden_by(kind: type) -> set[str]:
    """The private methods and attributes of a class that one of its foreign bases has."""
    ours = {"keras_transformer", "tests", *sys.stdlib_module_names}
    foreign = [base for base in kind.__mro__[1:] if base.__module__.partition(".")[0] not in ours]
    own = own_names(ast.parse(textwrap.dedent(inspect.getsource(kind))))
    return {
        name
        for name in filter(is_private, own - DOCUMENTED)
        if any(
            name in vars(base) or re.search(rf'\bself\.{name}\b|"{name}"', source_of(base))
            for base in foreign
        )
    }


def test_an_override_is_found():
    import keras

    class Model(keras.Model):
        def _symbolic_build(self):
            self._mine, self._is_quantized = 1, True

        def _of_mine(self): ...

    assert overridden_by(Model) == {"_symbolic_build", "_is_quantized"}


def test_every_declared_name_is_used():
    text = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py") if path.name != MODULE)
    text += (PACKAGE / MODULE).read_text().partition("\ndef ")[2]
    unused = [name for name in DECLARED if not re.search(rf"\b{name}\b", text)]
    assert not unused, f"remove them from keras_transformer/{MODULE}"
