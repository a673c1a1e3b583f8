"""The layers of the Transformer, one concept per file, built on `keras.ops`."""

from keras_transformer.layers.attention import MultiHeadAttention
from keras_transformer.layers.attention_weights import AttentionWeights, recorded_attention
from keras_transformer.layers.composite import CompositeLayer
from keras_transformer.layers.decoder import Decoder, DecoderLayer
from keras_transformer.layers.dense import Dense
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.embedding import TokenEmbedding
from keras_transformer.layers.encoder import Encoder, EncoderLayer
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.masks import causal_mask, padding_mask
from keras_transformer.layers.normalization import LayerNormalization
from keras_transformer.layers.positions import LearnedPositions, PositionalEncoding, Rotation
from keras_transformer.layers.self_attention import SelfAttention
from keras_transformer.layers.variants.convolution import Convolution
from keras_transformer.layers.variants.recurrence import Recurrence
from keras_transformer.layers.variants.restricted_attention import RestrictedSelfAttention

__all__ = [
    "AttentionWeights",
    "CompositeLayer",
    "Convolution",
    "Decoder",
    "DecoderLayer",
    "Dense",
    "Dropout",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "LayerNormalization",
    "LearnedPositions",
    "MultiHeadAttention",
    "PositionalEncoding",
    "Recurrence",
    "RestrictedSelfAttention",
    "Rotation",
    "SelfAttention",
    "TokenEmbedding",
    "causal_mask",
    "padding_mask",
    "recorded_attention",
]
