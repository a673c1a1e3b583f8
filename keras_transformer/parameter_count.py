"""The number of parameters of a configuration, from its fields alone."""

from keras_transformer.config import TransformerConfig


def parameter_count(config: TransformerConfig) -> int:
    """Counts the trained parameters, without making any.

    Example:
        >>> f"{parameter_count(TransformerConfig()):,}"  # the paper's base model
        '63,045,632'
    """
    d, size = config.d_model, config.output_vocab_size
    d_k, d_v, kernel_size = config.d_k, config.d_v, config.kernel_size or 0
    assert d_k and d_v  # `TransformerConfig` fills them in

    def dense(inputs, outputs, bias=True):
        return (inputs + bias) * outputs

    bias, norm = config.attention_bias, 2 * d
    keys, values = config.num_heads * d_k, config.num_heads * d_v
    attention = 2 * dense(d, keys, bias) + dense(d, values, bias) + dense(values, d, bias)
    in_encoder = in_decoder = attention
    match config.layer_type:
        case "recurrent":  # gated recurrent units, with two biases
            in_decoder = 3 * d * (d + d + 2)
            in_encoder = 2 * in_decoder
        case "convolutional":
            in_encoder = in_decoder = dense(kernel_size * d, d)
        case "separable":
            in_encoder = in_decoder = kernel_size * d + dense(d, d)
    feed_forward = dense(d, config.d_ff) + dense(config.d_ff, d)
    encoder_layer = in_encoder + feed_forward + 2 * norm
    decoder_layer = in_decoder + attention + feed_forward + 3 * norm
    output = config.output_bias * size if config.tie_output else dense(d, size, config.output_bias)
    return (
        config.vocab_size * d
        + (0 if config.share_embeddings else size * d)
        + (2 * config.max_positions * d if config.positions == "learned" else 0)
        + config.num_encoder_layers * encoder_layer
        + config.num_decoder_layers * decoder_layer
        + (2 * norm if config.pre_norm else 0)
        + output
    )
