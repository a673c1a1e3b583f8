"""Training with `model.fit`, its checkpoints and its reports."""

from keras_transformer.training.checkpoints import Checkpoints, average_weights
from keras_transformer.training.model_dir import ModelDir
from keras_transformer.training.options import TrainingOptions
from keras_transformer.training.trainer import train

__all__ = ["Checkpoints", "ModelDir", "TrainingOptions", "average_weights", "train"]
