"""Training with `model.fit`, its checkpoints and its reports."""

from keras_transformer.options.training import TrainingOptions
from keras_transformer.training.checkpoints import Checkpoints, average_weights
from keras_transformer.training.model_dir import ModelDir
from keras_transformer.training.preparation import parallel_parts
from keras_transformer.training.step import TrainableTransformer
from keras_transformer.training.strategies import (
    STRATEGIES,
    is_chief,
    make_strategy,
    replica_batches,
    worker_of,
)
from keras_transformer.training.trainer import train

__all__ = [
    "STRATEGIES",
    "Checkpoints",
    "ModelDir",
    "TrainableTransformer",
    "TrainingOptions",
    "average_weights",
    "is_chief",
    "make_strategy",
    "parallel_parts",
    "replica_batches",
    "train",
    "worker_of",
]
