"""The training run that tests share: it takes seconds, on the built-in corpus."""

from keras_transformer import TransformerConfig
from keras_transformer.training import TrainingOptions

CONFIG = TransformerConfig(
    vocab_size=340,
    num_encoder_layers=1,
    num_decoder_layers=1,
    d_model=16,
    d_ff=16,
    num_heads=2,
    dropout=0.0,
)
OPTIONS = TrainingOptions(
    steps=6,
    tokens_per_batch=256,
    max_length=60,
    warmup_steps=10,
    jit_compile=False,
    report_steps=2,
    validation_steps=3,
    checkpoint_steps=2,
    keep_checkpoints=2,
    average_checkpoints=2,
    parallel_parts=1,
)
