"""The Transformer as a Keras model (paper, section 3)."""

import keras
from keras import ops

from keras_transformer.config import TransformerConfig
from keras_transformer.layers import (
    Decoder,
    Dropout,
    Encoder,
    LearnedPositions,
    PositionalEncoding,
    TokenEmbedding,
    padding_mask,
)
from keras_transformer.layers.block import TransformerBlock


@keras.saving.register_keras_serializable("keras_transformer")
class Transformer(keras.Model):
    """An encoder-decoder model of sequences of ids (paper, section 3, figure 1).

    Args:
        config: a `TransformerConfig`.

    Call arguments:
        inputs: a dictionary of `source_ids`, integer (batch, source_length), and `target_ids`,
            integer (batch, target_length): the target shifted right by one, so that it begins
            with the start symbol. Both padded at the right with `config.pad_id`.

    Returns:
        Logits (batch, target_length, config.num_targets): at each position, of what follows it.

    Example:
        >>> model = Transformer(TransformerConfig.from_preset("tiny", vocab_size=100))
        >>> ids = keras.ops.ones((2, 7), "int32")
        >>> model({"source_ids": ids, "target_ids": ids}).shape
        TensorShape([2, 7, 100])
    """

    def __init__(self, config: TransformerConfig, **kwargs):
        super().__init__(**kwargs)
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
            else self._embedding("target_embedding", config.num_targets, logits_bias=tied_bias)
        )
        self.source_positions = self._positions("source_positions")
        self.target_positions = self._positions("target_positions")
        self.embedding_dropout = Dropout(config.dropout, dtype=self.dtype_policy)
        block = {name: getattr(config, name) for name in TransformerBlock.FIELDS}
        block["dtype"] = self.dtype_policy
        self.encoder = Encoder(config.num_encoder_layers, **block, name="encoder")
        self.decoder = Decoder(config.num_decoder_layers, **block, name="decoder")
        self.output_projection = (
            None
            if config.tie_output
            else keras.layers.Dense(
                config.num_targets,
                use_bias=config.output_bias,
                dtype=self.dtype_policy,
                name="output_projection",
            )
        )

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
        config = self.config
        if config.learned_positions:
            return LearnedPositions(
                config.d_model, config.max_positions, dtype=self.dtype_policy, name=name
            )
        return PositionalEncoding(
            config.d_model, config.interleave_sinusoids, dtype=self.dtype_policy, name=name
        )

    def build(self, input_shape=None):
        row = (None, None, self.config.d_model)
        for embedding in (self.source_embedding, self.target_embedding):
            if not embedding.built:
                embedding.build((None, None))
        for layer in (self.source_positions, self.target_positions, self.encoder, self.decoder):
            layer.build(row)
        if self.output_projection is not None:
            self.output_projection.build(row)
        self.built = True

    def call(self, inputs, training=None):
        memory, source_mask = self.encode(inputs["source_ids"], training)
        x = self._embed(
            inputs["target_ids"], self.target_embedding, self.target_positions, training
        )
        x = self.decoder(x, memory, source_mask=source_mask, training=training)
        return self._logits(x)

    def encode(self, source_ids, training=None):
        """The memory (batch, source_length, d_model), and the mask of its padding."""
        mask = padding_mask(source_ids, self.config.pad_id)
        x = self._embed(source_ids, self.source_embedding, self.source_positions, training)
        return self.encoder(x, attention_mask=mask, training=training), mask

    def decode_step(self, target_ids, position, cache, visible, prepared, source_mask):
        """Logits of what follows one more token of every beam, without looking at the rest again.

        Args:
            target_ids: integer (batch, beam_size), the tokens at `position`.
            position: int32 (batch,), how far each sentence is.
            cache: as `decoder.new_cache` makes it.
            visible: boolean (batch, 1, beam_size, size * beam_size), which cached positions of
                which beams each beam goes back to.
            prepared: as `decoder.prepare` makes it of the memory.
            source_mask: as `encode` returns it.

        Returns:
            Logits (batch, beam_size, config.num_targets), and the cache with this position written.
        """
        batch, beam_size = ops.shape(target_ids)
        rows = ops.reshape(target_ids, (batch * beam_size, 1))
        start = ops.repeat(position, beam_size)
        x = self._embed(rows, self.target_embedding, self.target_positions, start=start)
        x = ops.reshape(x, (batch, beam_size, self.config.d_model))
        x, cache = self.decoder.step(x, position, cache, visible, prepared, source_mask)
        return self._logits(x), cache

    def _embed(self, ids, embedding, positions, training=False, start=0):
        return self.embedding_dropout(positions(embedding(ids), start=start), training=training)

    def _logits(self, x):
        if self.output_projection is not None:
            return self.output_projection(x)
        return self.target_embedding.logits(x)

    def get_config(self):
        return {**super().get_config(), "config": self.config.to_dict()}

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        fields = TransformerConfig.from_dict(config.pop("config"))
        return cls(fields, **config)
