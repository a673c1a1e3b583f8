"""What a trained model does inside."""

from keras_transformer.analysis.attention import AttentionMaps, attention_maps

__all__ = ["AttentionMaps", "attention_maps"]
