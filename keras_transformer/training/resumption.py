"""Whether a training fits the run that a model_dir holds already: refused, or resumed."""

import os

from keras_transformer.config import TransformerConfig
from keras_transformer.errors import UserError
from keras_transformer.options.training import MAY_CHANGE
from keras_transformer.training.model_dir import ModelDir
from keras_transformer.training.run_record import recorded_run

# What the digests in the record of a run's data are of.
_DIGESTS = {
    "fingerprint": "training pairs",
    "validation": "validation pairs",
    "validation_text": "validation pairs",
    "vocabulary": "vocabulary",
}


def check_trained_here(model_dir: ModelDir) -> None:
    """Raises `UserError` if the model was imported, so that training cannot resume."""
    if not model_dir.load_training()["data"]:
        raise UserError(
            f"model_dir {model_dir.path} has an imported model, so there is no run to resume: "
            f"begin a new one in another model_dir with start_from={model_dir.path}"
        )


def check_start(model_dir: ModelDir, start_from: str | os.PathLike | None) -> None:
    """Raises `UserError` if a run would start from the weights of its own folder."""
    if start_from and os.path.realpath(start_from) == os.path.realpath(model_dir.path):
        raise UserError(
            f"start_from={os.fspath(start_from)} is model_dir {model_dir.path} itself: give the "
            "new run another model_dir, or leave out start_from to resume this one"
        )


def check_same_model(model_dir: ModelDir, config: TransformerConfig, way_out: str = "") -> None:
    """Raises `UserError` if the model has another configuration, and names the difference.

    Args:
        model_dir: folder of the model.
        config: the configuration.
        way_out: end of the message, with what to do.
    """
    here, wanted = model_dir.load_config().to_dict(), config.to_dict()
    _refuse_difference(model_dir, "model of another configuration", here, wanted, way_out)


def check_same_run(
    model_dir: ModelDir,
    options: dict,
    data: dict,
    vocab_type: str | None,
    linearization: str | None = None,
) -> None:
    """Raises `UserError` if the run cannot be resumed with these, and names the difference.

    Args:
        model_dir: folder of the run.
        options: the `TrainingOptions`; only those in `MAY_CHANGE` may differ.
        data: the record of the data; if it differed, so would the batches.
        vocab_type: kind of subwords, or None.
        linearization: how a parser writes trees, or None.
    """
    here = recorded_run(model_dir.load_training())
    fixed = {n: v for n, v in options.items() if n not in MAY_CHANGE}
    kinds = {"vocab_type": vocab_type, "linearization": linearization}
    way_out = (
        "; resume it with the recorded ones, or begin a new run from its weights: "
        f"--start_from={model_dir.path} --model_dir=NEW"
    )
    wanted = {**fixed, **data, **kinds}
    _refuse_difference(model_dir, "run with other options or data", here, wanted, way_out)


def _refuse_difference(model_dir, what, here, wanted, way_out):
    different = dict.fromkeys(
        f"other {_DIGESTS[name]}" if name in _DIGESTS else f"{name}={here.get(name)} (now {value})"
        for name, value in wanted.items()
        if here.get(name) != value
    )
    if different:
        raise UserError(
            f"model_dir {model_dir.path} holds a {what}: {', '.join(different)}{way_out}"
        )
