"""The private names of libraries that the package uses, and why there is no public way.

A library may remove such a name in any release. No other module uses one, except to override a
method that is declared here. `tests/project/test_private_names.py` checks both, and that the
installed versions have all names; `pyproject.toml` allows only versions between two that were
tested.

Importing this module imports no library.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import keras
    import tensorflow as tf
    import tensorflow_text as tf_text
    from sacrebleu.metrics import CHRF


@dataclasses.dataclass(frozen=True)
class PrivateNames:
    """Names of a module or class that its library does not document.

    Args:
        library: the distribution, and the version in which the names were read.
        owner: the module, or "module:class".
        names: names of attributes or methods of the owner.
        use: what does not work without them.
        reason: why no public name serves.
    """

    library: str
    owner: str
    names: tuple[str, ...]
    use: str
    reason: str


PRIVATE_NAMES = (
    PrivateNames(
        "keras 3.15.1",
        "keras:Layer",
        ("_flatten_layers",),
        "saving and loading quantised parts, and layers that a subclass of Transformer adds",
        "only a model lists its layers (`Model.layers`), a layer does not",
    ),
    PrivateNames(
        "keras 3.15.1",
        "keras.src.backend",
        ("set_keras_mask",),
        "the padding mask of TokenEmbedding(mask_zero=True)",
        "`compute_mask` is not told whether the layer was called with `reverse`, and a layer for "
        "the mask alone would be one more in every model",
    ),
    PrivateNames(
        "keras 3.15.1",
        "keras.src.backend.tensorflow.trainer:TensorFlowTrainer",
        ("_maybe_symbolic_build",),
        "`fit` and `evaluate` under a tf.distribute strategy",
        "they call it before the first step, where it uses up a batch even of a built model",
    ),
    PrivateNames(
        "keras 3.15.1",
        "keras.src.trainers.epoch_iterator:EpochIterator",
        ("data_adapter",),
        "building a model under a tf.distribute strategy, from the specification of its data",
        "`_maybe_symbolic_build` gets the data as this iterator, which has no public class",
    ),
    PrivateNames(
        "keras 3.15.1",
        "keras:Optimizer",
        ("_backend_update_step",),
        "refusing optimizers whose update is more than `update_step`, such as Nadam",
        "such optimizers override this method",
    ),
    PrivateNames(
        "sacrebleu 2.6.0",
        "sacrebleu.metrics:CHRF",
        ("_compute_f_score", "_get_match_statistics"),
        "minimum Bayes risk",
        "`sentence_score` counts the n-grams of both sentences again for each pair of them",
    ),
    PrivateNames(
        "tensorflow-text 2.21.1",
        "tensorflow_text.python.ops.sentencepiece_tokenizer",
        ("gen_sentencepiece_tokenizer",),
        "tokenizing in-graph after `keras.utils.set_random_seed`",
        "the public class makes a resource without a name, which TensorFlow then forgets",
    ),
    PrivateNames(
        "tensorflow-text 2.21.1",
        "tensorflow_text:SentencepieceTokenizer",
        ("_model_resource",),
        "tokenizing in-graph after `keras.utils.set_random_seed`",
        "the public class takes no resource as an argument",
    ),
    PrivateNames(
        "uvicorn 0.54.0",
        "uvicorn.protocols.http.h11_impl:H11Protocol",
        (
            "app",
            "client",
            "conn",
            "connection_lost",
            "connection_made",
            "connections",
            "cycle",
            "data_received",
            "eof_received",
            "handle_events",
            "loop",
            "on_response_complete",
            "pause_writing",
            "resume_writing",
            "scope",
            "send_400_response",
            "shutdown",
            "timeout_keep_alive",
            "timeout_keep_alive_handler",
            "timeout_keep_alive_task",
            "transport",
        ),
        "the deadlines and limits of connections of `serve`",
        "uvicorn has no limits for slow clients, and documents no class of a connection",
    ),
    PrivateNames(
        "uvicorn 0.54.0",
        "uvicorn.protocols.http.h11_impl:RequestResponseCycle",
        ("default_headers", "more_body", "response_complete", "response_started"),
        "the deadlines and limits of connections of `serve`",
        "the same",
    ),
)


def layers_within(layer: keras.Layer, recursive: bool = False) -> list[keras.Layer]:
    """Lists the layers that a layer has; with `recursive`, also the layers of these."""
    return layer._flatten_layers(include_self=False, recursive=recursive)


def set_padding_mask(x: keras.KerasTensor, mask: keras.KerasTensor) -> None:
    """Attaches a padding mask to a tensor, which Keras passes to the layers that take the tensor.

    Args:
        x: (batch, length, ...).
        mask: boolean, (batch, length), false at padding.
    """
    from keras.src.backend import set_keras_mask

    set_keras_mask(x, mask)


def updates_by_update_step(optimizer: keras.Optimizer) -> bool:
    """Tells whether an optimizer updates weights by its `update_step` alone, such as Adam."""
    import keras

    return all(
        getattr(type(optimizer), name) is getattr(keras.Optimizer, name)
        for name in ("apply", "_backend_update_step")
    )


def chrf_of_counts(
    metric: CHRF, hypothesis: Sequence[Counter[str]], reference: Sequence[Counter[str]]
) -> float:
    """Computes the chrF of a hypothesis, from 0 to 100, as `metric.sentence_score` does.

    Args:
        metric: sacreBLEU's metric, without words (`word_order=0`).
        hypothesis: the counts of its character n-grams, for each order.
        reference: the same of the reference.
    """
    statistics = [
        figure
        for of_hypothesis, of_reference in zip(hypothesis, reference, strict=True)
        for figure in metric._get_match_statistics(of_hypothesis, of_reference)
    ]
    return metric._compute_f_score(statistics)


def sentencepiece_resource(model: bytes, name: str) -> tf.Tensor:
    """Makes a SentencePiece model a TensorFlow resource: a scalar, its handle.

    Args:
        model: the serialised model.
        name: the resource's name, under which TensorFlow finds the same one again.
    """
    from tensorflow_text.python.ops.sentencepiece_tokenizer import gen_sentencepiece_tokenizer

    return gen_sentencepiece_tokenizer.sentencepiece_op(model=model, shared_name=name)


def set_sentencepiece_resource(
    tokenizer: tf_text.SentencepieceTokenizer,
    resource: tf.saved_model.experimental.TrackableResource,
) -> None:
    """Replaces the resource that a tokenizer of TensorFlow Text has made for its model."""
    tokenizer._model_resource = resource
