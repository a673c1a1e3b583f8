"""Export of a whole translator, from text to text, for TensorFlow Serving (TensorFlow)."""

import dataclasses
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import tensorflow as tf
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog, PredictLog

from keras_transformer import search
from keras_transformer.errors import UserError, reason_of
from keras_transformer.files import expect_local, partial_folder, sync, sync_all
from keras_transformer.search import NO_HYPOTHESIS
from keras_transformer.text.in_graph import one_line
from keras_transformer.text.text_files import is_utf8
from keras_transformer.translator import Translator

# A server frees the graphs of a version that it unloads, unless it has registered gradients.
_SAVE_OPTIONS = tf.saved_model.SaveOptions(experimental_custom_gradients=False)


def export_saved_model(translator: Translator, output: str | os.PathLike) -> Path:
    """Writes a new version of a model that TensorFlow Serving finds in `output`.

    Versions are numbered from 1, and each is written atomically. A version holds model, vocabulary
    and search. It needs only the operations of TensorFlow and TensorFlow Text. Texts are UTF-8
    bytes, and the batch may be empty. The signatures are:

        serving_default   text (batch,) -> translation (batch,), score (batch,)
        nbest             text (batch,) -> translations, scores (batch, n_best)
        score             text (batch,), translation (batch,) -> score (batch,)
        sample            text (batch,), seed (batch,) -> translations, scores (batch, n_best)

    Translations and scores equal those of the `Translator`, with its options and limits. A score is
    float32. In `nbest`, a slot without a hypothesis is empty and has the score -1e9, which JSON can
    hold. `assets.extra` holds requests with which TensorFlow Serving warms the model up.

    A translator that samples also has the signature `sample`. Its seeds are int32, and a text's
    samples depend only on its own seed: they are those of a `Translator` with that seed for its
    first sentence. The other signatures sample by the translator's `seed` and the text's index in
    the request; without a seed, each call gives new samples.

    Args:
        translator: the translator to export.
        output: the folder of all versions; made if missing.

    Returns:
        The folder of the new version.

    Raises:
        UserError: `output` is not a folder, is a URL, has a name that is not UTF-8, or cannot be
            written to.

    Example:
        >>> export_saved_model(Translator(model, tokenizer), "export/en-de")
        PosixPath('export/en-de/1')
    """
    translator.expect_direction()
    expect_local(output)
    output = Path(output)
    if output.exists() and not output.is_dir():
        raise UserError(f"{output} is not a folder: choose one to write a version to")
    if not is_utf8([os.fsencode(output)]):
        raise UserError(f"{output}: TensorFlow needs a name in UTF-8: choose another folder")
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{output}: cannot create the folder: {error.strerror}") from error
    served = _ServedTranslator(translator)
    try:
        # TensorFlow Serving ignores folders whose names are not numbers.
        with partial_folder(output / "version") as partial:
            signatures = served.signatures()
            tf.saved_model.save(served, str(partial), signatures=signatures, options=_SAVE_OPTIONS)
            warm_up = partial / "assets.extra" / "tf_serving_warmup_requests"
            _write_warmup_requests(warm_up, signatures)
            sync_all(partial)
            version = _as_next_version(partial)
            sync(output)
        return version
    except (OSError, tf.errors.OpError) as error:
        raise UserError(f"{output}: the model cannot be written: {reason_of(error)}") from error


def _as_next_version(partial: Path) -> Path:
    """Renames a folder to the next number; another process may take that at the same moment."""
    while True:
        versions = [int(path.name) for path in partial.parent.iterdir() if path.name.isdecimal()]
        path = partial.with_name(str(max(versions, default=0) + 1))
        try:
            return partial.rename(path)
        except OSError:
            if not path.exists():
                raise


class _ServedTranslator(tf.Module):
    """The content of a SavedModel: TensorFlow variables and functions, without Keras layers."""

    def __init__(self, translator: Translator):
        super().__init__()
        self.tokenizer = translator.tokenizer
        self.weights = [weight.value for model in translator.models for weight in model.weights]
        # A SavedModel tracks modules. A `Translator` is not one, so the Keras model is not saved.
        self._translator = translator

    def signatures(self) -> dict[str, Callable]:
        signatures = {
            "serving_default": self.translate,
            "nbest": self.translate_n,
            "score": self.score,
        }
        return signatures | ({"sample": self.sample} if self._translator.options.sample else {})

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")], autograph=False)
    def translate(self, text):
        translations, scores = self._search(text, self._translator.options.best_only().n_best)
        return {"translation": translations[:, 0], "score": scores[:, 0]}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")], autograph=False)
    def translate_n(self, text):
        translations, scores = self._search(text, self._translator.options.n_best)
        return {"translations": translations, "scores": scores}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.string, "text"),
            tf.TensorSpec([None], tf.int32, "seed"),
        ],
        autograph=False,
    )
    def sample(self, text, seed):
        seed = _one_each(seed, text, "seed must have one value for each text")
        n_best = self._translator.options.n_best
        translations, scores = self._search(text, n_best, seed, tf.zeros_like(seed))
        return {"translations": translations, "scores": scores}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.string, "text"),
            tf.TensorSpec([None], tf.string, "translation"),
        ],
        autograph=False,
    )
    def score(self, text, translation):
        translation = _one_each(translation, text, "translation must have one value for each text")
        translator = self._translator
        source = self._tokenize(text, self.tokenizer.tokenize)
        target = self._tokenize(translation, self.tokenizer.tokenize_target)
        source_lengths, target_lengths = source.row_lengths(), target.row_lengths()

        def compute(rows, num_slots, source_ids, target_ids):
            first_id = self.tokenizer.first_id
            return [
                search.score(
                    translator.models, source_ids, target_ids, translator.options, first_id
                )
            ]

        [scores] = self._by_length(
            compute,
            [source, target],
            positions=tf.maximum(source_lengths, target_lengths) + 1,
            without_tokens=[tf.zeros([1])],
        )
        # The translation of a text without tokens is always empty.
        of_no_text = tf.where(target_lengths == 0, 0.0, NO_HYPOTHESIS)
        return {"score": tf.where(source_lengths == 0, of_no_text, scores)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")], autograph=False)
    def count_tokens(self, text):
        """Counts tokens for Python servers, which plan batches by them; not a signature."""
        return self.tokenizer.tokenize(text).row_lengths()

    @tf.function(input_signature=[], autograph=False)
    def max_tokens(self):
        """The maximum number of tokens that are read of a text, for Python servers too."""
        return tf.constant(self._translator.max_source_length - 1)

    @tf.function(autograph=False)  # traced once for each `n_best`; two signatures may share it
    def _search(self, text, n_best: int, seeds=None, sentence_ids=None):
        options = dataclasses.replace(self._translator.options, n_best=n_best)
        source = self._tokenize(text, self.tokenizer.tokenize)
        lengths = source.row_lengths()
        if seeds is None:
            seeds = tf.repeat(self._seed(), tf.size(text))
            sentence_ids = tf.range(tf.size(text))

        def compute(rows, num_slots, source_ids):
            ids, scores = search.search(
                self._translator.models,
                source_ids,
                options,
                required=search.Required(first_id=self.tokenizer.first_id),
                seed=tf.gather(seeds, rows),
                num_slots=num_slots,
                sentence_ids=tf.gather(sentence_ids, rows),
            )
            texts = self.tokenizer.detokenize(tf.reshape(ids, [-1, tf.shape(ids)[2]]))
            return [tf.reshape(one_line(texts), [-1, n_best]), scores]

        return self._by_length(
            compute,
            [source],
            positions=tf.where(lengths > 0, lengths + 1 + options.extra_length, 0),
            without_tokens=[
                tf.fill([1, n_best], ""),
                tf.constant([[0.0] + [NO_HYPOTHESIS] * (n_best - 1)]),
            ],
            extra_length=options.extra_length,
        )

    def _seed(self):
        """The seed for all texts of a request: the translator's, or a new one at each call."""
        options = self._translator.options
        if options.seed is not None or not options.sample:
            return tf.constant(options.seed or 0)
        # With these seeds of 0 the operation seeds itself when it is loaded; `tf.random.uniform`
        # would save the seed of `tf.random.set_seed` in this process.
        shape, low, high = tf.zeros([0], tf.int32), tf.constant(0), tf.constant(tf.int32.max)
        return tf.raw_ops.RandomUniformInt(shape=shape, minval=low, maxval=high, seed=0, seed2=0)

    def _tokenize(self, text, tokenize):
        return tokenize(text)[:, : self._translator.max_source_length - 1]

    def _by_length(
        self,
        compute: Callable[..., list[tf.Tensor]],
        tokens: Sequence[tf.RaggedTensor],
        positions: tf.Tensor,
        without_tokens: list[tf.Tensor],
        extra_length: int = 0,
    ) -> list[tf.Tensor]:
        """Computes texts of similar length together, as `Translator` does, and restores the order.

        Args:
            compute: takes the indices of some texts, the number of batch slots, and for each of
                `tokens` the padded ids, int32 (some, length); returns results (some, ...).
            tokens: ragged ids of all texts, (batch, None) each.
            positions: int64 (batch,), each text's share of `tokens_per_batch`; 0 without tokens.
            without_tokens: the results for one text without tokens, (1, ...).
            extra_length: the part of `positions` that is not encoded; it allows encoding more texts
                together than there are batch slots.
        """
        config, tokens_per_batch = (
            self._translator.models[0].config,
            self._translator.tokens_per_batch,
        )
        order = tf.argsort(positions, direction="DESCENDING", stable=True)
        count = tf.math.count_nonzero(positions)

        def compute_batch(first, *results):
            longest = positions[order[first]]
            num_slots = tf.maximum(tokens_per_batch // longest, 1)
            size = tf.maximum(tokens_per_batch // (longest - extra_length), 1)
            rows = order[first : tf.minimum(first + size, count)]
            end = tf.fill([tf.size(rows), 1], config.end_id)
            ids = [tf.concat([tf.gather(some, rows), end], axis=1) for some in tokens]
            num_slots = tf.cast(num_slots, tf.int32)
            more = compute(rows, num_slots, *(some.to_tensor(config.pad_id) for some in ids))
            joined = [tf.concat(both, axis=0) for both in zip(results, more, strict=True)]
            return first + size, *joined

        nothing = [result[:0] for result in without_tokens]
        shapes = [tf.TensorShape([None, *result.shape[1:]]) for result in nothing]
        _, *results = tf.while_loop(
            lambda first, *_: first < count,
            compute_batch,
            [tf.constant(0, tf.int64), *nothing],
            shape_invariants=[tf.TensorShape([]), *shapes],
            parallel_iterations=1,  # parallel batches would need the memory of all of them
        )
        rest = tf.size(positions, tf.int64) - count
        original_order = tf.argsort(order)
        return [
            tf.gather(tf.concat([result, tf.repeat(empty, rest, axis=0)], axis=0), original_order)
            for result, empty in zip(results, without_tokens, strict=True)
        ]


def _one_each(values: tf.Tensor, text: tf.Tensor, message: str) -> tf.Tensor:
    """Returns the values, after checking that there is one for each text."""
    # Operations in a graph have no order by themselves: readers of the values wait for the check.
    with tf.control_dependencies(
        [tf.debugging.assert_equal(tf.size(text), tf.size(values), message)]
    ):
        return tf.identity(values)


def _write_warmup_requests(path: Path, signatures: Iterable[str]) -> None:
    """Writes a request for each signature, which TensorFlow Serving runs before it serves."""
    text = tf.make_tensor_proto(["Hello, world!"])
    others = {
        "score": {"translation": text},
        "sample": {"seed": tf.make_tensor_proto([0], tf.int32)},
    }
    path.parent.mkdir()
    with tf.io.TFRecordWriter(str(path)) as writer:
        for name in signatures:
            tensors = {"text": text, **others.get(name, {})}
            request = PredictRequest(model_spec=ModelSpec(signature_name=name), inputs=tensors)
            log = PredictionLog(predict_log=PredictLog(request=request))
            writer.write(log.SerializeToString())
