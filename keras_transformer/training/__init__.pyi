from .checkpoints import Checkpoints, average_weights
from .job import TrainingJob
from .model_dir import ModelDir
from .preparation import parallel_parts
from .run_record import TrainingOptions
from .step import TrainableTransformer
from .strategies import (
    STRATEGIES,
    is_chief,
    make_strategy,
    replica_batches,
    worker_of,
)
from .trainer import train

__all__ = [
    "STRATEGIES",
    "Checkpoints",
    "ModelDir",
    "TrainableTransformer",
    "TrainingJob",
    "TrainingOptions",
    "average_weights",
    "is_chief",
    "make_strategy",
    "parallel_parts",
    "replica_batches",
    "train",
    "worker_of",
]
