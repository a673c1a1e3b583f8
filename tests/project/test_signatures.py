"""No function takes more than 7 parameters: more of them belong together in a record."""

import ast
from collections.abc import Iterator

import pytest
from helpers import ROOT

PACKAGE = ROOT / "keras_transformer"
MOST = 7


def signatures(source: str) -> Iterator[tuple[int, str, int]]:
    """Yields the line, the name and the number of parameters of each function and method.

    Keyword-only parameters count; `self`, `cls`, `*args` and `**kwargs` do not.
    """

    def walk(node, names, in_class):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                yield from walk(child, [*names, child.name], True)
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                path = [*names, child.name]
                given = child.args.posonlyargs + child.args.args + child.args.kwonlyargs
                is_bound = in_class and given and given[0].arg in ("self", "cls")
                yield child.lineno, ".".join(path), len(given) - bool(is_bound)
                yield from walk(child, path, False)
            else:
                yield from walk(child, names, in_class)

    return walk(ast.parse(source), [], False)


def too_long(name: str, source: str) -> list[str]:
    """A sentence about each function of a module that takes too many parameters.

    Constructors and calls of layers may take more: Keras gives a layer's hyperparameters one by
    one, as it saves them, and finds masks by the names of arguments; `compute_output_spec` has
    those of the call. So may the generated constructor of a dataclass, which no source shows.

    Args:
        name: the module's path in the package, such as "data/sources.py".
        source: its code.
    """
    return [
        f"keras_transformer/{name}:{line} {function} takes {count} parameters, more than {MOST}: "
        "put those that belong together in a record, or split it"
        for line, function, count in signatures(source)
        if count > MOST
        and not (
            name.startswith("layers/") and function.endswith((".__init__", ".call", "_output_spec"))
        )
    ]


def test_no_function_takes_more_than_seven_parameters():
    sentences = [
        sentence
        for path in sorted(PACKAGE.rglob("*.py"))
        for sentence in too_long(str(path.relative_to(PACKAGE)), path.read_text())
    ]
    assert not sentences, "\n".join(sentences)


SEVEN = "a, b, c=1, *rest, d, e=2, f=3, g=4, **others"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (f"def f({SEVEN}): pass", None),
        ("def f(a, b, c, d, e, f, *, g, h): pass", "f takes 8"),
        ("async def f(a, b, c, d, /, e, f, g, h): pass", "f takes 8"),
        (f"class A:\n    def f(self, {SEVEN}): pass", None),
        ("class A:\n    def f(self, a, b, c, d, e, f, g, h): pass", "a.py:2 A.f takes 8"),
        ("class A:\n    def __init__(self, a, b, c, d, e, f, g, h): pass", "A.__init__ takes 8"),
        ("def f():\n    def g(a, b, c, d, e, f, g, h): pass", "a.py:2 f.g takes 8"),
        ("if True:\n    def f(self, a, b, c, d, e, f, g): pass", "f takes 8"),
    ],
)
def test_a_function_of_too_many_parameters_is_named(source, found):
    sentences = too_long("data/a.py", source)
    assert (not sentences) if found is None else found in sentences[0]


def test_only_constructors_and_calls_of_layers_may_take_more():
    eight = "class A:\n    def {}(self, a, b, c, d, e, f, g, h): pass"
    assert not too_long("layers/a.py", eight.format("__init__"))
    assert not too_long("layers/a.py", eight.format("call"))
    assert too_long("layers/a.py", eight.format("step"))
    assert too_long("training/layers.py", eight.format("__init__"))
