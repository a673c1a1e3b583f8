"""Every import has the direction that docs/architecture.md gives."""

import ast
import re
from collections.abc import Iterator

import pytest
from helpers import ROOT

PACKAGE = ROOT / "keras_transformer"
DOCUMENT = (ROOT / "docs" / "architecture.md").read_text()
# Imports from files below in the list, each with its reason.
EXCEPTIONS = {
    ("training/", "ctranslate2/"): "`train` validates with the engine that commands use, and "
    "converts the model for it",
    ("translator.py", "export/"): "`Translator.export` is short for a function of a `Translator`",
}
# The names that the package defines itself; all others are those of its modules.
OWN_NAMES = {"__version__"}


def listed(document: str) -> list[str]:
    """The files and folders of the package in the order of the list, such as "errors.py"."""
    [block] = re.findall(r"^    keras_transformer/\n((?:      .*\n)+)", document, re.MULTILINE)
    lines = re.findall(r"^ {6}((?:\w+(?:\.py|/)\s+)+)", block, re.MULTILINE)
    return [name for line in lines for name in line.split()]


def imports(source: str) -> Iterator[tuple[int, str]]:
    """Yields the line and the module of each import from the package, wherever it stands.

    Example: `from keras_transformer import data, errors` imports "data" and "errors".
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"line {node.lineno}: use an absolute import"
            if node.module == "keras_transformer":
                modules = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                modules = [node.module]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            continue
        for module in modules:
            package, _, name = module.partition(".")
            if package == "keras_transformer":
                yield node.lineno, name


def wrong_imports(name: str, source: str, order: list[str]) -> dict[tuple[str, str], str]:
    """The imports of a module that have the wrong direction, and a sentence about each.

    Args:
        name: the module's path in the package, such as "data/sources.py".
        source: its code.
        order: the files and folders of the package, from `listed`.

    Returns:
        A dictionary from the importing file or folder and the imported one to the sentence.
    """
    folder, slash, _ = name.partition("/")
    importer, wrong = folder + slash, {}
    for line, module in imports(source):
        where = f"keras_transformer/{name}:{line} imports"
        first = module.partition(".")[0]
        imported = next((each for each in (f"{first}/", f"{first}.py") if each in order), None)
        if imported and order.index(imported) > order.index(importer):
            wrong[importer, imported] = (
                f"{where} keras_transformer.{module}, but {imported} comes after {importer} in the "
                "list of docs/architecture.md"
            )
        elif not imported and first not in OWN_NAMES:
            what = f"{first} from the package" if first else "the whole package"
            wrong[importer, first] = f"{where} {what}: import the module that it needs"
    return wrong


def names_of_files():
    return [str(path.relative_to(PACKAGE)) for path in sorted(PACKAGE.rglob("*.py"))]


def test_the_list_has_every_file_and_folder_once():
    found = {name.partition("/")[0] + "/" * ("/" in name) for name in names_of_files()}
    assert sorted(listed(DOCUMENT)) == sorted(found)


def test_every_module_imports_only_from_files_before_it_in_the_list():
    order, wrong = listed(DOCUMENT), {}
    for name in names_of_files():
        wrong |= wrong_imports(name, (PACKAGE / name).read_text(), order)
    sentences = [sentence for pair, sentence in wrong.items() if pair not in EXCEPTIONS]
    assert not sentences, "\n".join(sentences)
    assert wrong.keys() == EXCEPTIONS.keys(), "remove the exceptions that are not needed any more"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from keras_transformer.errors import UserError", None),
        ("from keras_transformer import __version__, errors, layers", None),
        ("import keras_transformer.errors", None),
        ("from keras_transformer.layers.masks import causal_mask", None),
        ("from keras_transformer import model", "imports keras_transformer.model, but model.py"),
        ("import keras_transformer.model", "imports keras_transformer.model, but model.py"),
        ("def f():\n    from keras_transformer.data.sources import Block", ":2 imports"),
        ("import keras_transformer as kt", "imports the whole package"),
        ("from keras_transformer import Transformer", "imports Transformer from the package"),
    ],
)
def test_an_import_of_the_wrong_direction_is_found(source, found):
    order = ["errors.py", "layers/", "model.py", "data/"]
    wrong = list(wrong_imports("layers/attention.py", source, order).values())
    assert wrong == [] if found is None else found in wrong[0]


# The layers that choose between a formula and its fast twin, and know whether they are in training.
LEAVES = {
    "layers/cache.py",
    "layers/attention_weights.py",
    "layers/dense.py",
    "layers/dropout.py",
    "layers/embedding.py",
    "layers/normalization.py",
    "layers/positions.py",
}
# Keras says to the model alone whether it is in training; its loss needs the number of replicas.
TRACES_OF_MODEL = {"def call(training)", "def compute_loss(training)", "machine.replicas"}


def traces_of_speed(source: str) -> set[str]:
    """Lists the imports of twins in a file, and the places where it knows of training.

    Example: {"fast.dispatch", "def call(training)", "training="} of a file that imports from
    `fast.dispatch`, has a `call` with the parameter `training`, and passes it on by its name.
    """
    folders = ("fast", "machine")
    traces = {module for _, module in imports(source) if module.partition(".")[0] in folders}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            names = [each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)]
            traces |= {f"def {node.name}(training)" for name in names if name == "training"}
        elif isinstance(node, ast.keyword) and node.arg == "training":
            traces.add("training=")
    return traces


def test_only_leaves_choose_twins_and_know_whether_they_are_in_training():
    names = ["model.py", *(name for name in names_of_files() if name.startswith("layers/"))]
    traces = {name: traces_of_speed((PACKAGE / name).read_text()) for name in names}
    assert traces["model.py"] == TRACES_OF_MODEL
    assert {name for name, found in traces.items() if found} == {"model.py", *LEAVES}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from keras_transformer.layers.shapes import reshape", set()),
        ("from keras_transformer.fast.dispatch import fused", {"fast.dispatch"}),
        ("def f():\n    import keras_transformer.fast.rows", {"fast.rows"}),
        ("from keras_transformer import machine", {"machine"}),
        ("class A:\n    def call(self, x, training=None): ...", {"def call(training)"}),
        ("def f(x, *, training): ...", {"def f(training)"}),
        ("y = layer(x, training=True)", {"training="}),
    ],
)
def test_a_composite_that_knows_of_twins_or_of_training_is_found(source, found):
    assert traces_of_speed(source) == found
