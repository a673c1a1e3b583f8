"""The optimizers of `train`: Adam (paper, section 5.3), and Muon."""

import keras
from keras import ops

from keras_transformer.options.training import TrainingOptions
from keras_transformer.schedules import InverseSquareRootSchedule


@keras.saving.register_keras_serializable("keras_transformer")
class Muon(keras.optimizers.Muon):
    """Muon (Jordan et al., 2024), whose updates of matrices are close to orthogonal.

    The momentum of a matrix is replaced by a matrix with the same singular vectors, and singular
    values near 1, which a few products of matrices compute. Embeddings and vectors are updated as
    by Adam, and so are weights whose path matches one of `exclude_layers`: name the projection to
    logits there, as `new_optimizer` does.

    It is Keras's, with a choice of the precision of these products.

    Args:
        *args: arguments of `keras.optimizers.Muon`, the learning rate first.
        product_dtype: dtype of the products, such as "bfloat16".
        **kwargs: arguments of `keras.optimizers.Muon`.

    Example:
        >>> x = keras.random.normal((4, 8))
        >>> optimizer = Muon(product_dtype="bfloat16")
        >>> values = keras.ops.svd(optimizer.zeropower_via_newtonschulz5(x, 5), compute_uv=False)
        >>> bool(keras.ops.all((0.6 < values) & (values < 1.3)))
        True
    """

    def __init__(self, *args, product_dtype: str = "float32", **kwargs):
        super().__init__(*args, **kwargs)
        self.product_dtype = product_dtype

    def zeropower_via_newtonschulz5(self, x, steps):
        """Computes the nearly orthogonal matrix (rows, columns) of `x`, of the same shape."""
        nearly = super().zeropower_via_newtonschulz5(ops.cast(x, self.product_dtype), steps)
        return ops.cast(nearly, x.dtype)

    def get_config(self):
        return {**super().get_config(), "product_dtype": self.product_dtype}


def new_optimizer(options: TrainingOptions, d_model: int) -> keras.Optimizer:
    """Makes the optimizer of a training with these options, for a model of this width."""
    schedule = InverseSquareRootSchedule.from_options(options, d_model)
    if options.optimizer == "adam":
        return keras.optimizers.Adam(
            schedule,
            beta_1=options.beta_1,
            beta_2=options.beta_2,
            epsilon=options.adam_epsilon,
        )
    return Muon(
        learning_rate=schedule,
        adam_beta_1=options.beta_1,
        adam_beta_2=options.beta_2,
        epsilon=options.adam_epsilon,
        weight_decay=None,
        adam_weight_decay=None,
        exclude_layers=["/output_projection/", "_positions/"],
        product_dtype="bfloat16" if options.dtype_policy == "mixed_bfloat16" else "float32",
    )
