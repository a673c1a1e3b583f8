"""One update of training: of any number of devices, in any number of parts (TensorFlow)."""

import functools
from collections.abc import Callable

import keras
import tensorflow as tf

from keras_transformer.backend.fused_losses import (
    fused_smoothed_cross_entropy,
    symmetric_divergence,
)
from keras_transformer.backend.replicas import sum_over_replicas
from keras_transformer.config import TransformerConfig
from keras_transformer.losses import per_token
from keras_transformer.metrics import Perplexity, TokenCount
from keras_transformer.model import Transformer
from keras_transformer.training.strategies import split_rows

# Of float16, whose small gradients would be zero: NVIDIA's recipe for mixed precision.
_FIRST_LOSS_SCALE, _UPDATES_UNTIL_GROWTH = 2.0**15, 2000

_NOT_OF_UPDATE_STEP = (
    "weight_decay",
    "clipnorm",
    "clipvalue",
    "global_clipnorm",
    "use_ema",
    "loss_scale_factor",
    "gradient_accumulation_steps",
)


@keras.saving.register_keras_serializable("keras_transformer")
class TrainableTransformer(Transformer):
    """A Transformer whose `fit` makes the updates of one device on any number of them.

    A step takes a global batch, and

    1. each replica sums the gradients of its rows, one micro-batch after another, of the loss that
       is divided by the tokens of the whole batch;
    2. the sums are added over all replicas, so that each has the same gradient;
    3. if its norm is finite, the optimizer moves the weights. If not, on whichever replica it went
       wrong, weights, optimizer and averages stay as they are, and the update is counted.

    A step is a batch and one more of `optimizer.iterations`, whether or not it moved the weights:
    so the step alone says where in the data and in the schedule a run is.

    `metric_sums` has what the metrics have summed up, of all replicas, after the last step.

    Its `fit` runs under `MultiWorkerMirroredStrategy` too, of which Keras's own makes no sense.
    `sample_weight` multiplies the losses of tokens, as with `LabelSmoothedCrossEntropy`.

    Args:
        config: a `TransformerConfig`.
        num_microbatches: parts that a batch is computed in, one after another, to need the memory
            of one part.
        parallel_parts: parts that each of these is computed in at the same time. On a CPU, where
            each then has a core, that is faster than all cores at work on one small operation.
        r_drop: weight of the divergence of two passes of each batch, with dropout of their own, in
            the loss (Liang et al., 2021): a step costs two. 0 for one pass.
        clip_norm: the largest norm of a gradient, all weights together; 0 for any.
        ema_decay: of an exponential moving average of the weights, reached as training goes on:
            `min(ema_decay, (1 + n) / (10 + n))` at the n-th update; 0 for no average.
        **kwargs: those of a Keras model. `dtype` may be "mixed_bfloat16" or "mixed_float16":
            weights, their updates, normalisation, softmax and loss are float32 all the same, and
            with float16 the loss is scaled.

    Example:
        >>> model = TrainableTransformer(config, num_microbatches=4, dtype="mixed_bfloat16")
        >>> model.compile(keras.optimizers.Adam(1e-3))
        >>> dataset = replica_batches(batches.dataset(), strategy, config.pad_id)
        >>> history = model.fit(dataset, steps_per_epoch=1, verbose=0)
        >>> sorted(history.history)
        ['gradient_norm', 'loss', 'perplexity', 'skipped_updates', 'target_tokens']
    """

    announce: Callable[[str], None] = staticmethod(print)

    def __init__(
        self,
        config: TransformerConfig,
        num_microbatches: int = 1,
        parallel_parts: int = 1,
        r_drop: float = 0.0,
        clip_norm: float = 0.0,
        ema_decay: float = 0.0,
        **kwargs,
    ):
        super().__init__(config, **kwargs)
        self.num_microbatches = num_microbatches
        self.parallel_parts = parallel_parts
        self.r_drop = r_drop
        self.clip_norm = clip_norm
        self.ema_decay = ema_decay
        self.token_metrics = [Perplexity(pad_id=config.pad_id), TokenCount(pad_id=config.pad_id)]

    def build(self, input_shape=None):
        super().build(input_shape)
        self.update_state = UpdateState(
            self.trainable_weights,
            has_average=self.ema_decay > 0,
            scales_loss=self.compute_dtype == "float16",
        )

    def compile(
        self, optimizer: keras.Optimizer, jit_compile: bool = False, run_eagerly: bool = False
    ):
        """Builds the model, and configures `fit` and `evaluate`.

        Both report the loss, the perplexity and the number of target tokens.

        Args:
            optimizer: is given the gradient, clipped, of each update that is not skipped.
            jit_compile: whether XLA compiles the step, once for each shape of batch; with several
                replicas, all of it but sums over them and the update.
            run_eagerly: whether Python runs each step, to look into it; slow.

        Raises:
            ValueError: the optimizer would do more with a gradient than its `update_step`.
        """
        optimizer = keras.optimizers.get(optimizer)
        for name in _NOT_OF_UPDATE_STEP:
            if getattr(optimizer, name):
                raise ValueError(f"expected an optimizer without {name}: found {optimizer}")
        super().compile(
            optimizer, jit_compile=jit_compile, run_eagerly=run_eagerly, auto_scale_loss=False
        )
        with self.distribute_strategy.scope():
            if not self.built:
                self.build()
            self.optimizer.build(self.trainable_variables)

    def compile_from_config(self, config):
        """Compiles a model that is loaded from a file."""
        config = keras.saving.deserialize_keras_object(config)
        self.compile(**{name: config[name] for name in ("optimizer", "jit_compile", "run_eagerly")})

    def reset_metrics(self):
        """Begins the sums of the metrics anew."""
        super().reset_metrics()
        self.metric_sums = [tf.zeros(variable.shape) for variable in self.metrics_variables]

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        """Nothing: the model is built. Keras would take a batch away, and fail with workers."""

    def make_train_function(self, force=False):
        """Sets `train_function`, which `fit` calls with an iterator for each step."""
        if self.train_function is not None and not force:
            return
        strategy = self.distribute_strategy
        is_alone = strategy.num_replicas_in_sync == 1
        gradients = self._gradients
        if self.jit_compile and not is_alone:
            gradients = tf.function(gradients, autograph=False, jit_compile=True)

        def step(batch):
            norm = strategy.run(self._step, args=(batch, gradients))
            # Outside of replicas, where a metric is the sum over all of them.
            logs = {m.name: tf.convert_to_tensor(m.result()) for m in self.metrics}
            logs["gradient_norm"] = strategy.experimental_local_results(norm)[0]
            logs["skipped_updates"] = tf.identity(self.update_state.skipped_updates.value)
            return logs, [tf.convert_to_tensor(v.value) for v in self.metrics_variables]

        functions, shapes = {}, set()

        def function_for(spec):
            if self.run_eagerly:
                return step
            if str(spec) not in functions:
                functions[str(spec)] = tf.function(
                    step,
                    # Of batches of any shape, so that Python traces the step once.
                    input_signature=[spec],
                    autograph=False,
                    jit_compile=self.jit_compile and is_alone,
                )
            return functions[str(spec)]

        def train_function(iterator):
            batch, spec = _next_batch(iterator)
            shape = tuple(strategy.experimental_local_results(batch[1])[0].shape)
            if self.jit_compile and shape not in shapes:
                shapes.add(shape)
                self.announce(f"Compiling for batches of {shape[0]} x {shape[1]}")
            logs, self.metric_sums = function_for(spec)(batch)
            return logs

        self.train_function = train_function

    def _step(self, batch, gradients_of):
        """One replica's part of an update; the norm of the gradient."""
        tokens = tf.math.count_nonzero(batch[1] != self.config.pad_id, dtype=tf.float32)
        all_tokens = tf.maximum(sum_over_replicas(tokens), 1.0)
        loss_scale = tf.identity(self.update_state.loss_scale.value)
        loss, gradients = gradients_of(batch, loss_scale / all_tokens)
        self._loss_tracker.update_state(loss / tf.maximum(tokens, 1.0), sample_weight=tokens)

        gradients = sum_over_replicas(gradients)
        norm = tf.linalg.global_norm(gradients) / loss_scale
        factor = 1.0 / loss_scale
        if self.clip_norm:
            factor *= tf.minimum(1.0, self.clip_norm / norm)
        context = tf.distribute.get_replica_context()
        context.merge_call(self._update, args=(gradients, factor, norm))
        return norm

    def _gradients(self, batch, weight):
        """The summed loss of all tokens, and the gradients of `weight` times that."""
        n = self.num_microbatches
        if n == 1:
            return self._micro_gradients(batch, weight)
        parts = split_rows(batch, n, self.config.pad_id)

        def add(index, sums):
            part = keras.tree.map_structure(lambda x: x[index], parts)
            return index + 1, _sum(sums, self._micro_gradients(part, weight))

        zeros = [tf.zeros(variable.shape) for variable in self.trainable_weights]
        # One at a time: TensorFlow would begin the next ones, and need the memory of all.
        _, sums = tf.while_loop(
            lambda index, _: index < n, add, (0, (0.0, zeros)), parallel_iterations=1
        )
        return sums

    def _micro_gradients(self, batch, weight):
        n = self.parallel_parts
        parts = split_rows(batch, n, self.config.pad_id)
        # TensorFlow computes at the same time what does not depend on each other.
        sums = [
            self._part_gradients(keras.tree.map_structure(lambda x, i=i: x[i], parts), weight)
            for i in range(n)
        ]
        return functools.reduce(_sum, sums)

    def _part_gradients(self, batch, weight):
        inputs, labels, weights = keras.utils.unpack_x_y_sample_weight(batch)
        real = self._real_tokens(labels)
        counted = real if weights is None else real * per_token(weights, real)
        with tf.GradientTape() as tape:
            losses, logits = self._token_losses(inputs, labels)
            loss = tf.reduce_sum(losses * counted)
            weighted = loss * weight
        for metric in self.token_metrics:
            metric.update_state(labels, logits)
        gradients = tape.gradient(
            weighted, self.trainable_weights, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        return loss, [tf.convert_to_tensor(gradient) for gradient in gradients]

    def test_step(self, data):
        """One replica's part of a batch of `evaluate`, which reports what `fit` does."""
        inputs, labels, weights = keras.utils.unpack_x_y_sample_weight(data)
        logits = self(inputs, training=False)
        losses = fused_smoothed_cross_entropy(labels, logits, self.config.label_smoothing)
        real = self._real_tokens(labels)
        tokens = tf.reduce_sum(real)
        counted = real if weights is None else real * per_token(weights, real)
        loss = tf.reduce_sum(losses * counted) / tf.maximum(tokens, 1.0)
        self._loss_tracker.update_state(loss, sample_weight=tokens)
        for metric in self.token_metrics:
            metric.update_state(labels, logits)
        return self.get_metrics_result()

    def _real_tokens(self, labels):
        return tf.cast(labels != self.config.pad_id, tf.float32)

    def _token_losses(self, inputs, labels):
        """The loss of each token (batch, length), and logits that it is of."""
        epsilon = self.config.label_smoothing
        if not self.r_drop:
            logits = self(inputs, training=True)
            return fused_smoothed_cross_entropy(labels, logits, epsilon), logits
        twice = keras.tree.map_structure(lambda x: tf.concat([x, x], axis=0), inputs)
        logits = self(twice, training=True)
        logits = tf.reshape(logits, [2, *tf.unstack(tf.shape(labels)), logits.shape[-1]])
        losses = fused_smoothed_cross_entropy(tf.stack([labels, labels]), logits, epsilon)
        # A quarter: the paper halves the divergence, and adds up the two losses.
        divergence = self.r_drop / 4 * symmetric_divergence(logits)
        return tf.reduce_mean(losses, axis=0) + divergence, logits[0]

    def _update(self, strategy, gradients, factor, norm):
        """Moves the weights, outside of replicas, where a decision is one for all of them."""
        is_finite = tf.math.is_finite(strategy.experimental_local_results(norm)[0])

        weights = [weight.value for weight in self.trainable_weights]

        def update(variables, function, *values):
            for variable, *value in zip(variables, *values, strict=True):
                strategy.extended.update(variable, function, args=tuple(value), group=False)

        def move():
            # Not `optimizer.apply`, which would sum over replicas once more.
            rate = self.optimizer.learning_rate
            update(
                weights,
                lambda w, g, factor: self.optimizer.update_step(g * factor, w, rate),
                gradients,
                [factor] * len(weights),
            )
            averages = [average.value for average in self.update_state.average]
            if averages:
                share = 1.0 - self._ema_decay_now()
                update(averages, lambda a, w: a.assign_sub(share * (a - w)), weights)
            return 0

        if strategy.num_replicas_in_sync == 1 and not self.run_eagerly:
            # A pass over weights and optimizer state in place of one for each operation.
            move = tf.function(move, autograph=False, jit_compile=True)

        def skip():
            self.update_state.skipped_updates.assign_add(1)
            return 0

        tf.cond(is_finite, move, skip)
        self.optimizer.iterations.assign_add(1)
        self.update_state.adapt_loss_scale(is_finite)

    def _ema_decay_now(self):
        n = tf.cast(self.optimizer.iterations.value, tf.float32) + 1.0
        return tf.minimum(self.ema_decay, (1.0 + n) / (10.0 + n))

    def save_own_variables(self, store):
        """Saves what updates leave behind, such as the moving average of the weights."""
        for name, variable in self.update_state.variables.items():
            store[name.replace("/", ".")] = variable

    def load_own_variables(self, store):
        """Loads what a file holds of that: a file of a `Transformer` holds nothing."""
        saved = set(store.keys())
        for name, variable in self.update_state.variables.items():
            if name.replace("/", ".") in saved:
                variable.assign(store[name.replace("/", ".")])

    def get_config(self):
        return {
            **super().get_config(),
            "num_microbatches": self.num_microbatches,
            "parallel_parts": self.parallel_parts,
            "r_drop": self.r_drop,
            "clip_norm": self.clip_norm,
            "ema_decay": self.ema_decay,
        }


class UpdateState:
    """Variables that updates change beside weights and the optimizer's; saved in checkpoints.

    It is no layer, so that its variables are not among a model's weights.

    Args:
        weights: of the model, built.
        has_average: whether there is a moving average of them.
        scales_loss: whether the loss is scaled, for gradients in float16.

    Attributes:
        skipped_updates: how many were not finite.
        loss_scale: what the loss is multiplied with before its gradients are taken.
        average: of each weight, in their order; empty if there is none.
    """

    def __init__(self, weights: list[keras.Variable], has_average: bool, scales_loss: bool):
        self.scales_loss = scales_loss
        self.skipped_updates = _scalar("skipped_updates", 0, "int64")
        self.loss_scale = _scalar("loss_scale", _FIRST_LOSS_SCALE if scales_loss else 1.0)
        self._finite_updates = _scalar("finite_updates", 0, "int64")
        self._names = [weight.path.partition("/")[2] for weight in weights]
        self.average = [
            keras.Variable(
                keras.ops.convert_to_numpy(weight),
                trainable=False,
                aggregation="mean",
                name="average",
            )
            for weight in (weights if has_average else ())
        ]

    @property
    def variables(self) -> dict[str, keras.Variable]:
        """All variables, by the names they have in a checkpoint."""
        scalars = (self.skipped_updates, self.loss_scale, self._finite_updates)
        averages = zip(self._names, self.average, strict=False)
        return {
            **{f"update/{variable.name}": variable for variable in scalars},
            **{f"ema/{name}": variable for name, variable in averages},
        }

    def adapt_loss_scale(self, is_finite) -> None:
        """Halves the scale after an update that was not finite, doubles it after many that were."""
        if not self.scales_loss:
            return
        updates = tf.where(is_finite, self._finite_updates.value + 1, 0)
        is_due = updates == _UPDATES_UNTIL_GROWTH
        scale = self.loss_scale.value * tf.where(is_finite, tf.where(is_due, 2.0, 1.0), 0.5)
        self.loss_scale.assign(tf.maximum(scale, 1.0))
        self._finite_updates.assign(tf.where(is_due, tf.zeros_like(updates), updates))


def _next_batch(iterator):
    """A batch, and a specification of all that are like it but in shape."""
    batch = next(iterator)
    if hasattr(iterator, "element_spec"):
        return batch, iterator.element_spec
    # A generator of the arrays given to `train_on_batch`; some may be None.
    batch = keras.utils.pack_x_y_sample_weight(*batch)
    batch = keras.tree.map_structure(tf.convert_to_tensor, batch)
    return batch, keras.tree.map_structure(
        lambda x: tf.TensorSpec([None] * x.shape.rank, x.dtype), batch
    )


def _sum(*structures):
    return tf.nest.map_structure(tf.add, *structures)


def _scalar(name, value, dtype="float32"):
    return keras.Variable(
        value, dtype=dtype, trainable=False, aggregation="only_first_replica", name=name
    )
