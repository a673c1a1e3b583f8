"""The hidden layer of the feed-forward network in training: a gradient in one pass."""

from keras import ops

from keras_transformer.fast.dispatch import custom_gradient, fused, fused_sum_of_rows, value_of


def rectified(x, kernel, bias):
    """Computes `max(0, x kernel + bias)`, with a gradient rectified and summed in one pass.

    Args:
        x: (rows, width).
        kernel: (width, hidden).
        bias: (hidden,).

    Returns:
        (rows, hidden).
    """

    @custom_gradient
    def hidden_of(x, kernel, bias):
        hidden = ops.relu(ops.add(ops.matmul(x, kernel), bias))  # (rows, hidden)

        def gradient(upstream):
            upstream, bias_gradient = _rectified_gradient(upstream, hidden)
            kernel_gradient = ops.matmul(ops.transpose(x), upstream)  # (width, hidden)
            return ops.matmul(upstream, ops.transpose(kernel)), kernel_gradient, bias_gradient

        return hidden, gradient

    return hidden_of(x, value_of(kernel), value_of(bias))


@fused
def _rectified_gradient(upstream, hidden):
    gradient = ops.where(hidden > 0, upstream, 0)  # (rows, hidden)
    return gradient, fused_sum_of_rows(gradient)
