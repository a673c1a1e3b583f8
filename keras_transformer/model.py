"""The Transformer as a Keras model (paper, section 3)."""

from collections.abc import Mapping

import keras
from keras import ops

from keras_transformer.config import TransformerConfig
from keras_transformer.layers import (
    Convolution,
    Decoder,
    DecoderLayer,
    Dense,
    Dropout,
    Encoder,
    EncoderLayer,
    FeedForward,
    LearnedPositions,
    MultiHeadAttention,
    PositionalEncoding,
    Recurrence,
    RestrictedSelfAttention,
    Rotation,
    SelfAttention,
    TokenEmbedding,
    padding_mask,
)
from keras_transformer.layers.changed_parts import (
    expect_quantized,
    freeze,
    frozen_parts,
    quantized_parts,
    set_policies,
)
from keras_transformer.layers.configured import ConfiguredLayer
from keras_transformer.layers.shapes import flat
from keras_transformer.losses import LabelSmoothedCrossEntropy
from keras_transformer.machine.replicas import num_replicas
from keras_transformer.model_inputs import (
    expect_ids,
    expect_in_vocabulary,
    with_plain_errors,
    without_class_weight,
)
from keras_transformer.private_names import layers_within


@keras.saving.register_keras_serializable("keras_transformer")
class Transformer(keras.Model):
    """An encoder-decoder model of sequences of ids (paper, section 3, figure 1).

    Args:
        config: a `TransformerConfig`.
        quantized: dtype policies of layers that `quantize` has changed, as in `get_config`.
        **kwargs: arguments of `keras.Model`.

    Call arguments:
        inputs: a dictionary of `source_ids`, integer (batch, source_length), and `target_ids`,
            integer (batch, target_length): the target shifted right by one, so that it begins
            with the start symbol. Both are padded at the right with `config.pad_id`.

    Returns:
        Logits (batch, target_length, config.output_vocab_size) of the token after each position.

    `fit` also takes any number of rows under `tf.distribute.MirroredStrategy`; with
    `LabelSmoothedCrossEntropy`, its updates equal those of one device, unless Keras clips the
    gradient, which it does on each replica (`clipnorm`). `class_weight` is refused.

    Example:
        >>> model = Transformer(TransformerConfig.from_preset("tiny", vocab_size=100))
        >>> ids = keras.ops.ones((2, 7), "int32")
        >>> model({"source_ids": ids, "target_ids": ids}).shape
        TensorShape([2, 7, 100])
    """

    def __init__(
        self, config: TransformerConfig, quantized: Mapping[str, str] | None = None, **kwargs
    ):
        if not isinstance(config, TransformerConfig):
            raise TypeError(f"config must be a TransformerConfig: found {type(config).__name__}")
        super().__init__(autocast=False, **kwargs)  # bfloat16 would round ids given as floats
        self.config = config
        tied_bias = config.tie_output and config.output_bias
        self.source_embedding = self._embedding(
            "source_embedding",
            config.vocab_size,
            logits_bias=tied_bias and config.share_embeddings,
        )
        self.target_embedding = (
            self.source_embedding
            if config.share_embeddings
            else self._embedding(
                "target_embedding", config.output_vocab_size, logits_bias=tied_bias
            )
        )
        self.source_positions = self._positions("source_positions")
        self.target_positions = self._positions("target_positions")
        self.embedding_dropout = Dropout(
            config.dropout, dtype=self.dtype_policy, name="embedding_dropout"
        )
        layers = [self._encoder_layer(f"layer_{i}") for i in range(config.num_encoder_layers)]
        self.encoder = Encoder(layers, dtype=self.dtype_policy, name="encoder")
        layers = [self._decoder_layer(f"layer_{i}") for i in range(config.num_decoder_layers)]
        self.decoder = Decoder(layers, dtype=self.dtype_policy, name="decoder")
        self.output_projection = (
            None
            if config.tie_output
            else Dense(
                config.output_vocab_size,
                use_bias=config.output_bias,
                dtype=self.dtype_policy,
                name="output_projection",
            )
        )
        set_policies(self, quantized or {})
        # As a function, because Keras adds no layer to a model whose own `build` it has called.
        with keras.name_scope(self.name):
            Transformer.build(self)
        self.built = type(self).build is Transformer.build

    def _embedding(self, name, size, logits_bias):
        config = self.config
        return TokenEmbedding(
            size,
            config.d_model,
            scale=config.scale_embeddings,
            logits_bias=logits_bias,
            dtype=self.dtype_policy,
            name=name,
        )

    def _positions(self, name):
        """Creates the layer that adds positions to embeddings; None if none are added."""
        config, options = self.config, {"dtype": self.dtype_policy, "name": name}
        match config.positions:
            case "learned":
                return LearnedPositions(config.d_model, config.max_positions, **options)
            case "rotary":
                return None
            case "sinusoidal_opennmt":
                options |= {"interleave": False, "inclusive": True, "first": 1}
            case "sinusoidal_fairseq":
                options |= {"interleave": False, "inclusive": True, "first": 2}
            case "sinusoidal_split":
                options |= {"interleave": False}
        return PositionalEncoding(config.d_model, **options)

    def _encoder_layer(self, name):
        return EncoderLayer(
            self_attention=self._self_attention(causal=False),
            feed_forward=self._feed_forward(),
            **self._residual_options(name),
        )

    def _decoder_layer(self, name):
        return DecoderLayer(
            self_attention=self._self_attention(causal=True),
            memory_attention=MultiHeadAttention(**self._attention_options("memory_attention")),
            feed_forward=self._feed_forward(),
            **self._residual_options(name),
        )

    def _residual_options(self, name):
        config = self.config
        return {
            "d_model": config.d_model,
            "dropout": config.dropout,
            "pre_norm": config.pre_norm,
            "layer_norm_epsilon": config.layer_norm_epsilon,
            "dtype": self.dtype_policy,
            "name": name,
        }

    def _feed_forward(self):
        config = self.config
        return FeedForward(
            config.d_model,
            config.d_ff,
            config.activation_dropout,
            config.activation,
            dtype=self.dtype_policy,
            name="feed_forward",
        )

    def _attention_options(self, name):
        config = self.config
        return {
            "d_model": config.d_model,
            "num_heads": config.num_heads,
            "d_k": config.d_k,
            "d_v": config.d_v,
            "dropout": config.attention_dropout,
            "use_bias": config.attention_bias,
            "dtype": self.dtype_policy,
            "name": name,
        }

    def _self_attention(self, causal):
        """Creates self-attention, or the layer that replaces it (paper, Table 1)."""
        config, options = self.config, self._attention_options("self_attention")
        rotation = Rotation(dtype=self.dtype_policy, name="rotation") if config.rotary else None
        match config.layer_type:
            case "attention":
                return SelfAttention(causal=causal, rotation=rotation, **options)
            case "restricted":
                return RestrictedSelfAttention(
                    radius=config.radius, causal=causal, rotation=rotation, **options
                )
        options = {name: options[name] for name in ("d_model", "dtype", "name")}
        if config.layer_type == "recurrent":
            return Recurrence(causal=causal, **options)
        separable = config.layer_type == "separable"
        return Convolution(
            kernel_size=config.kernel_size, separable=separable, causal=causal, **options
        )

    fit = with_plain_errors(without_class_weight(keras.Model.fit))
    train_on_batch = with_plain_errors(without_class_weight(keras.Model.train_on_batch))
    evaluate = with_plain_errors(keras.Model.evaluate)
    predict = with_plain_errors(keras.Model.predict)

    stateless_call = ConfiguredLayer.stateless_call  # by which Keras trains on JAX

    def build(self, input_shape=None):
        """Builds the layers; the constructor does so, because the config gives all shapes.

        A subclass may create variables of its own in its `build`.
        """
        row = (None, None, self.config.d_model)
        layers = {
            self.source_embedding: (None, None),
            self.target_embedding: (None, None),
            self.source_positions: row,
            self.target_positions: row,
            self.encoder: row,
            self.decoder: row,
            self.output_projection: row,
        }
        for layer, shape in layers.items():
            if layer is not None and not layer.built:
                layer.build(shape)

    def call(self, inputs, training=None):
        # Because the call takes `training`, Keras hands it down to the layers.
        expect_ids(inputs)
        config = self.config
        expect_in_vocabulary("source_ids", inputs["source_ids"], config.vocab_size)
        expect_in_vocabulary("target_ids", inputs["target_ids"], config.output_vocab_size)
        memory, source_mask = self.encode(inputs["source_ids"])
        x = self._embed(inputs["target_ids"], self.target_embedding, self.target_positions)
        return self._logits(self.decoder(x, memory, source_mask=source_mask))

    def encode(self, source_ids):
        """Computes the memory (batch, source_length, d_model) and the source's padding mask."""
        mask = self._source_mask(source_ids)
        x = self._embed(source_ids, self.source_embedding, self.source_positions)
        return self.encoder(x, attention_mask=mask), mask

    def _source_mask(self, source_ids):
        """Masks padding, and the end symbol if the encoder does not read it."""
        mask = padding_mask(source_ids, self.config.pad_id)
        if self.config.source_end:
            return mask
        return ops.logical_and(mask, padding_mask(source_ids, self.config.end_id))

    def _embed(self, ids, embedding, positions, start=0):
        x = embedding(ids)
        if positions is not None:
            x = positions(x, start=start)
        return self.embedding_dropout(x)

    def _logits(self, x, kernel=None):
        if self.output_projection is not None:
            return self.output_projection(x)
        return self.target_embedding.logits(x, kernel)

    def decode_step(self, target_ids, past, cache, prepared, source_mask, logits_kernel=None):
        """Computes the logits after one more token of every beam, with the earlier ones cached.

        Args:
            target_ids: integer (batch, beam_size), the tokens at this position.
            past: a `Past`, the position and what each beam sees of the earlier ones.
            cache: cache of the earlier positions, as `decoder.new_cache` makes it.
            prepared: result of `decoder.prepare` for the memory.
            source_mask: padding mask from `encode`.
            logits_kernel: result of `logits_kernel`, for many steps of few rows.

        Returns:
            Logits (batch, beam_size, config.output_vocab_size), and the cache with this position.
        """
        rows = ops.reshape(target_ids, (-1, 1))  # (batch * beam_size, 1)
        start = ops.reshape(past.position[:, None] + ops.zeros_like(target_ids), (-1,))
        x = self._embed(rows, self.target_embedding, self.target_positions, start=start)
        x, cache = self.decoder.step(flat(x), past, cache, prepared, source_mask)
        logits = self._logits(x, logits_kernel)  # (batch * beam_size, output_vocab_size)
        return ops.reshape(logits, (-1, past.beam_size, logits.shape[-1])), cache

    @property
    def decoding_weights(self) -> list[keras.Variable]:
        """The weights that `decode_step` reads, without the states of dropout's seeds."""
        layers = (
            self.decoder,
            self.target_embedding,
            self.target_positions,
            self.output_projection,
        )
        return [each for layer in layers if layer is not None for each in layer.weights]

    def logits_kernel(self):
        """Copies what `decode_step` multiplies by to compute logits; None: no copy is faster."""
        return self.target_embedding.logits_kernel() if self.config.tie_output else None

    @staticmethod
    def get_layout_map(
        device_mesh: keras.distribution.DeviceMesh,
        model_parallel_dim_name: str = "model",
        data_parallel_dim_name: str = "batch",
    ) -> keras.distribution.LayoutMap:
        """Lays out the weights for `keras.distribution.ModelParallel`, as keras-hub's models do.

        Embeddings are split by vocabulary. The matrices of queries, keys, values and hidden layers
        are split by columns, together with their biases, and the matrices that follow them by
        rows. All other weights are replicated.

        Args:
            device_mesh: the devices.
            model_parallel_dim_name: the axis of `device_mesh` over which weights are split.
            data_parallel_dim_name: the axis over which the batch is split; no weight is.

        Raises:
            ValueError: an axis is not among those of `device_mesh`.
        """
        for name in (model_parallel_dim_name, data_parallel_dim_name):
            if name not in device_mesh.axis_names:
                axes = ", ".join(device_mesh.axis_names)
                raise ValueError(f"device_mesh has no axis {name!r}: its axes are {axes}")
        rows, columns = (model_parallel_dim_name, None), (None, model_parallel_dim_name)
        bias = (model_parallel_dim_name,)
        layout_map = keras.distribution.LayoutMap(device_mesh)
        layout_map[r".*_embedding/embeddings"] = rows
        layout_map[r".*_embedding/bias"] = bias
        layout_map[r".*attention/(query|key|value)/kernel"] = columns
        layout_map[r".*attention/(query|key|value)/bias"] = bias
        layout_map[r".*feed_forward/hidden/kernel"] = columns
        layout_map[r".*feed_forward/hidden/bias"] = bias
        layout_map[r".*(attention|feed_forward)/output/kernel"] = rows
        layout_map[r".*output_projection/kernel"] = columns
        layout_map[r".*output_projection/bias"] = bias
        return layout_map

    def export(
        self, filepath, format="tf_saved_model", verbose=None, input_signature=None, **kwargs
    ):
        """Writes the model for serving, as `keras.Model.export` does.

        Without an `input_signature`, inputs are int32 (batch, length), of any batch and lengths;
        Keras would assume floats. The model need not have been called before.
        """
        self._build_additions()
        if input_signature is None:
            ids = keras.InputSpec(shape=(None, None), dtype="int32")
            input_signature = [{"source_ids": ids, "target_ids": ids}]
        return super().export(filepath, format, verbose, input_signature, **kwargs)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """Computes the loss as Keras does, and on several replicas over the tokens of all of them.

        An override that needs `self.losses` reads them before it calls this method.
        """
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        is_ours = isinstance(self.loss, LabelSmoothedCrossEntropy) and not keras.tree.is_nested(y)
        if num_replicas() == 1 or not is_ours:
            return loss
        # Of losses that layers have added, Keras reports the mean of the replicas.
        added = sum(ops.cast(ops.sum(each), loss.dtype) for each in self.losses) / num_replicas()
        added = ops.stop_gradient(added)
        return self.loss.over_replicas(loss - added, y, sample_weight) + added

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        """Builds the model before training, from the data's specification instead of a batch.

        Under a TensorFlow strategy, Keras's own method uses up the first batch, and adds up the
        replicas' batches, which fails if their shapes differ.
        """
        if iterator is not None:
            import tensorflow as tf

            data_batch = keras.tree.map_structure(
                lambda spec: tf.nest.flatten(spec, expand_composites=True)[0],  # of one replica
                iterator.data_adapter.get_tf_dataset().element_spec,
            )
        super()._maybe_symbolic_build(data_batch=data_batch)

    def load_own_variables(self, store):
        """Loads the variables of a subclass; what else a file holds is for training."""
        own = filter(str.isdecimal, store.keys())
        super().load_own_variables({key: store[key] for key in own})

    def get_config(self):
        config = super().get_config()
        parts = {**quantized_parts(self), **frozen_parts(self)}
        return {**config, **parts, "config": self.config.to_dict()}

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        fields = TransformerConfig.from_dict(config.pop("config"))
        frozen = config.pop("frozen", [])
        model = cls(fields, **config)
        policies = config.get("quantized", {})
        set_policies(model, policies)  # of layers that a subclass has added
        expect_quantized(model, policies)
        model._build_additions()
        freeze(model, frozen)
        return model

    def _build_additions(self):
        """Builds what a subclass has added: Keras would load no weights of a layer without any."""
        if not self.built:
            self.build()
        if not all(layer.built for layer in layers_within(self, recursive=True)):
            ids = keras.KerasTensor((None, None), "int32")
            try:
                self({"source_ids": ids, "target_ids": ids})
            except Exception as error:
                error.add_note(
                    f"{type(self).__name__} has layers that are not built, so it is called with "
                    "source_ids and target_ids: if it needs other inputs, build these layers in "
                    "its `build` method"
                )
                raise
