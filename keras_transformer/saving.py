"""Registers all classes of this package that `keras.saving.load_model` finds in files of models.

Each class is registered when its module is imported, and importing the package imports no module,
because that would load a backend. A program that loads a model imports this module first.
`TrainableTransformer` needs TensorFlow, so it is left out: `keras_transformer.training.step`
registers it.

Example:
    >>> import keras_transformer.saving
    >>> keras.saving.get_registered_object("keras_transformer>Transformer").__name__
    'Transformer'
"""

from keras_transformer import layers, losses, metrics, model, optimizers, schedules  # noqa: F401
