"""Registers the package's classes with Keras, whichever of the two a program imports first.

`keras.saving.load_model` finds only registered classes. Importing them registers them, and needs
Keras, but importing the package loads no backend. So where Keras is not there yet, the import that
loads it registers the classes at its end.
"""

import sys
from importlib.abc import MetaPathFinder


def register_with_keras() -> None:
    """Registers all classes, now or at the end of the import that loads Keras."""
    if "keras" in sys.modules:
        _register()
    else:
        sys.meta_path.insert(0, _UntilKeras())


def _register():
    # Importing the classes registers them.
    from keras_transformer import layers, losses, metrics, model, schedules  # noqa: F401


class _UntilKeras(MetaPathFinder):
    """Watches the imports that may load Keras; other finders find the modules.

    They are those of Keras, of TensorFlow, which imports it, and of this package. Classes are
    registered once the outermost of them has ended, because they need whole modules.
    """

    def __init__(self):
        self.depth = 0

    def find_spec(self, name, path=None, target=None):
        if name not in ("keras", "tensorflow") and not name.startswith("keras_transformer."):
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next(filter(None, found), None)
        if spec and spec.loader:
            self._watch(spec.loader)
        return spec

    def _watch(self, loader):
        load = loader.exec_module

        def watched(module):
            loader.exec_module = load
            self.depth += 1
            try:
                load(module)
            finally:
                self.depth -= 1
            if self.depth == 0 and "keras" in sys.modules and self in sys.meta_path:
                sys.meta_path.remove(self)
                _register()

        loader.exec_module = watched
