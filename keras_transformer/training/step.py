"""One training update, on any number of devices and in any number of parts (TensorFlow)."""

import functools
from collections.abc import Callable

import keras
import tensorflow as tf

from keras_transformer.config import TransformerConfig
from keras_transformer.errors import expect_tensorflow
from keras_transformer.fast.dispatch import op_by_op
from keras_transformer.fast.losses import fused_smoothed_cross_entropy, symmetric_divergence
from keras_transformer.losses import token_weights
from keras_transformer.machine.replicas import sum_over_replicas
from keras_transformer.metrics import Perplexity, TokenCount
from keras_transformer.model import Transformer
from keras_transformer.private_names import updates_by_update_step
from keras_transformer.training.strategies import split_rows
from keras_transformer.training.update_state import UpdateState

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
    """A Transformer whose `fit` makes the same updates on one device or on several.

    A step takes a global batch:

    1. Each replica sums the gradients over its rows, one micro-batch after another. The loss is
       divided by the number of tokens in the global batch.
    2. The sums are added over all replicas, so that each has the same gradient.
    3. If the gradient's norm is finite, the optimizer updates the weights. If it is not, on any
       replica, then weights, optimizer and averages stay unchanged, and the skipped update is
       counted.

    Each step takes one batch and adds 1 to `optimizer.iterations`, whether or not it updates the
    weights. So the step alone determines a run's place in the data and in the schedule.

    `metric_sums` holds the metrics' sums over all replicas after the last step.

    Unlike Keras's own `fit`, this one also works under `MultiWorkerMirroredStrategy`.
    `sample_weight` multiplies the losses of tokens, as with `LabelSmoothedCrossEntropy`.

    Args:
        config: a `TransformerConfig`.
        num_microbatches: number of micro-batches that a batch is split into. They are computed one
            after another, and need the memory of one.
        parallel_parts: number of parts of a micro-batch to compute in parallel. On a CPU, one part
            for each core is faster than all cores working on one small operation.
        r_drop: weight of the R-Drop loss (Liang et al., 2021), the divergence between two passes
            with different dropout; each step runs the batch twice. 0 disables it.
        clip_norm: maximum global norm of the gradient; 0 disables clipping.
        ema_decay: decay rate of an exponential moving average of the weights. At the n-th update it
            is `min(ema_decay, (1 + n) / (10 + n))`. 0 keeps no average.
        **kwargs: arguments of a Keras model. `dtype` may be "mixed_bfloat16" or "mixed_float16":
            weights, their updates, normalisation, softmax and loss stay float32, and with float16
            the loss is scaled.

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
        expect_tensorflow("TrainableTransformer")
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
            self.weights,
            has_average=self.ema_decay > 0,
            scales_loss=self.compute_dtype == "float16",
        )

    def compile(
        self, optimizer: keras.Optimizer, jit_compile: bool = False, run_eagerly: bool = False
    ):
        """Builds the model, and configures `fit` and `evaluate`.

        Both report the loss, the perplexity and the number of target tokens.

        Args:
            optimizer: gets the clipped gradient of each update that is not skipped.
            jit_compile: whether XLA compiles the step, once for each batch shape; with several
                replicas, all except the sums over replicas and the update.
            run_eagerly: whether Python runs each step, for debugging; slow.

        Raises:
            ValueError: the optimizer has an option, such as `clipnorm`, or code of its own, as
                Nadam and `LossScaleOptimizer` do, outside its `update_step`.
        """
        optimizer = keras.optimizers.get(optimizer)
        if not updates_by_update_step(optimizer):
            raise ValueError(
                "optimizer must be one whose update is its update_step, such as Adam: "
                f"found {type(optimizer).__name__}"
            )
        for name in _NOT_OF_UPDATE_STEP:
            if getattr(optimizer, name):
                found = f"{type(optimizer).__name__}({name}={getattr(optimizer, name)})"
                raise ValueError(f"optimizer must not set {name}: found {found}")
        super().compile(
            optimizer, jit_compile=jit_compile, run_eagerly=run_eagerly, auto_scale_loss=False
        )
        with self.distribute_strategy.scope():
            if not self.built:
                self.build()
            self.optimizer.build(self.trainable_variables)

    def compile_from_config(self, config):
        """Compiles a model that was loaded from a file."""
        config = keras.saving.deserialize_keras_object(config)
        self.compile(**{name: config[name] for name in ("optimizer", "jit_compile", "run_eagerly")})

    @property
    def loss_metric(self) -> keras.metrics.Mean:
        """The mean loss, which Keras makes in `compile` and lists first."""
        return self.metrics[0]

    def reset_metrics(self):
        """Resets the metrics' sums to zero."""
        super().reset_metrics()
        self.metric_sums = [tf.zeros(variable.shape) for variable in self.metrics_variables]

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        """Does nothing: the model is built. Keras would consume a batch, and fail with workers."""

    def make_train_function(self, force=False):
        """Sets `train_function`, which `fit` calls with an iterator at each step."""
        if self.train_function is not None and not force:
            return
        strategy = self.distribute_strategy
        is_alone = strategy.num_replicas_in_sync == 1
        gradients = self._gradients
        if self.jit_compile and not is_alone:
            gradients = tf.function(gradients, autograph=False, jit_compile=True)

        step = functools.partial(self._global_step, gradients)
        functions, shapes = {}, set()

        def function_for(spec):
            if self.run_eagerly:
                return step
            if str(spec) not in functions:
                functions[str(spec)] = tf.function(
                    step,
                    # Batches of any shape, so that Python traces the step once.
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

    def _global_step(self, gradients_of, batch):
        """Computes the update for a global batch; returns its logs and the metrics' sums."""
        strategy = self.distribute_strategy
        norm = strategy.run(self._replica_step, args=(batch, gradients_of))
        # Outside of replicas, a metric is the sum over all of them.
        logs = {m.name: tf.convert_to_tensor(m.result()) for m in self.metrics}
        logs["gradient_norm"] = strategy.experimental_local_results(norm)[0]
        logs["skipped_updates"] = tf.identity(self.update_state.skipped_updates.value)
        return logs, [tf.convert_to_tensor(v.value) for v in self.metrics_variables]

    def _replica_step(self, batch, gradients_of):
        """Computes one replica's part of an update; returns the norm of the gradient."""
        tokens = tf.math.count_nonzero(batch[1] != self.config.pad_id, dtype=tf.float32)
        all_tokens = tf.maximum(sum_over_replicas(tokens), 1.0)
        loss_scale = tf.identity(self.update_state.loss_scale.value)
        loss, gradients = gradients_of(batch, loss_scale / all_tokens)
        self.loss_metric.update_state(loss / tf.maximum(tokens, 1.0), sample_weight=tokens)

        gradients = sum_over_replicas(gradients)
        norm = tf.linalg.global_norm(gradients) / loss_scale
        factor = 1.0 / loss_scale
        if self.clip_norm:
            factor *= tf.minimum(1.0, self.clip_norm / norm)
        context = tf.distribute.get_replica_context()
        context.merge_call(self._update, args=(gradients, factor, norm))
        return norm

    def _gradients(self, batch, weight):
        """The summed loss of all tokens, and the gradients of `weight` times that sum."""
        n = self.num_microbatches
        if n == 1:
            return self._micro_gradients(batch, weight)
        parts = split_rows(batch, n, self.config.pad_id)

        def add(index, sums):
            part = keras.tree.map_structure(lambda x: x[index], parts)
            return index + 1, _sum(sums, self._micro_gradients(part, weight))

        zeros = [tf.zeros(variable.shape) for variable in self.trainable_weights]
        # One part at a time: TensorFlow would begin several, and need the memory of all of them.
        _, sums = tf.while_loop(
            lambda index, _: index < n, add, (0, (0.0, zeros)), parallel_iterations=1
        )
        return sums

    def _micro_gradients(self, batch, weight):
        """The same for one micro-batch, in parts that TensorFlow computes in parallel."""
        n = self.parallel_parts
        parts = split_rows(batch, n, self.config.pad_id)
        with op_by_op(not self.jit_compile):
            sums = [
                self._part_gradients(keras.tree.map_structure(lambda x, i=i: x[i], parts), weight)
                for i in range(n)
            ]
        return functools.reduce(_sum, sums)

    def _part_gradients(self, batch, weight):
        """The same for one part: its pass through the model and back."""
        inputs, labels, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        with tf.GradientTape() as tape:
            losses, logits = self._token_losses(inputs, labels)
            loss = self._summed_loss(losses, labels, sample_weight)
            weighted = loss * weight
        for metric in self.token_metrics:
            metric.update_state(labels, logits)
        weights = [weight.value for weight in self.trainable_weights]
        gradients = tape.gradient(
            weighted, weights, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        return loss, [tf.convert_to_tensor(gradient) for gradient in gradients]

    def test_step(self, data):
        """One replica's part of a batch of `evaluate`, which reports the same figures as `fit`."""
        inputs, labels, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        logits = self(inputs, training=False)
        losses = fused_smoothed_cross_entropy(labels, logits, self.config.label_smoothing)
        tokens = tf.reduce_sum(token_weights(labels, self.config.pad_id))
        loss = self._summed_loss(losses, labels, sample_weight) / tf.maximum(tokens, 1.0)
        self.loss_metric.update_state(loss, sample_weight=tokens)
        for metric in self.token_metrics:
            metric.update_state(labels, logits)
        return self.get_metrics_result()

    def _summed_loss(self, losses, labels, sample_weight):
        """The sum of the losses (batch, length) of real tokens, in float32."""
        weights = token_weights(labels, self.config.pad_id, sample_weight)
        return tf.reduce_sum(tf.cast(losses, tf.float32) * weights)

    def _token_losses(self, inputs, labels):
        """The loss of each token (batch, length), and the logits that it was computed from."""
        epsilon = self.config.label_smoothing
        if not self.r_drop:
            logits = self(inputs, training=True)
            return fused_smoothed_cross_entropy(labels, logits, epsilon), logits
        twice = keras.tree.map_structure(lambda x: tf.concat([x, x], axis=0), inputs)
        logits = self(twice, training=True)  # (2 * batch, length, vocabulary)
        logits = tf.reshape(logits, [2, *tf.unstack(tf.shape(labels)), logits.shape[-1]])
        losses = fused_smoothed_cross_entropy(tf.stack([labels, labels]), logits, epsilon)
        # A quarter, since the losses are averaged: the paper halves the divergence and adds them.
        divergence = self.r_drop / 4 * symmetric_divergence(logits)
        return tf.reduce_mean(losses, axis=0) + divergence, logits[0]

    def _update(self, strategy, gradients, factor, norm):
        """Updates the weights, outside of replicas, so that one decision holds for all of them."""
        is_finite = tf.math.is_finite(strategy.experimental_local_results(norm)[0])

        weights = [weight.value for weight in self.trainable_weights]

        def update(variables, function, *values):
            for variable, *value in zip(variables, *values, strict=True):
                strategy.extended.update(variable, function, args=tuple(value), group=False)

        def move():
            # Not `optimizer.apply`, which would sum over replicas again.
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
                averaged = [weight.value for weight in self.update_state.weights]
                update(averages, lambda a, w: a.assign_sub(share * (a - w)), averaged)
            return 0

        # XLA multiplies matrices slowly, in bfloat16 above all.
        has_products = isinstance(self.optimizer, keras.optimizers.Muon)
        if strategy.num_replicas_in_sync == 1 and not self.run_eagerly and not has_products:
            # XLA fuses the update into one pass over weights and optimizer state.
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
        """Saves the variables of `update_state`, such as the moving average of the weights."""
        super().save_own_variables(store)
        for name, variable in self._update_variables().items():
            store[name] = variable

    def load_own_variables(self, store):
        """Loads the variables of `update_state` in the file; a file of a `Transformer` has none."""
        super().load_own_variables(store)
        saved = set(store.keys())
        for name, variable in self._update_variables().items():
            if name in saved:
                variable.assign(store[name])

    def _update_variables(self):
        """The variables of `update_state`, by their names in a file; none before `build`."""
        variables = self.update_state.variables if self.built else {}
        return {name.replace("/", "."): variable for name, variable in variables.items()}

    def get_config(self):
        return {
            **super().get_config(),
            "num_microbatches": self.num_microbatches,
            "parallel_parts": self.parallel_parts,
            "r_drop": self.r_drop,
            "clip_norm": self.clip_norm,
            "ema_decay": self.ema_decay,
        }


def _next_batch(iterator):
    """A batch, and the specification of batches that differ only in shape."""
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
