"""Functions compiled into few passes over memory, where the backend can."""

import contextlib
import contextvars
import functools
import itertools
import threading
from collections.abc import Callable, Iterator

import keras
from keras import ops

_LOCK, _NUMBERS = threading.Lock(), itertools.count()  # of registered gradients
_OP_BY_OP = contextvars.ContextVar("op_by_op", default=False)


@contextlib.contextmanager
def op_by_op(value: bool = True) -> Iterator[None]:
    """Says whether TensorFlow will run the graph built here op by op, and not XLA as a whole."""
    token = _OP_BY_OP.set(value)
    try:
        yield
    finally:
        _OP_BY_OP.reset(token)


def runs_op_by_op() -> bool:
    """Whether TensorFlow will run the graph built here op by op."""
    return _OP_BY_OP.get()


def fused(function: Callable) -> Callable:
    """Compiles a function of tensors as part of a TensorFlow graph.

    TensorFlow runs a graph op by op, and each op is a pass over memory; XLA needs one or two
    passes in all. Keep matrix products outside: TensorFlow's own are faster. Outside a graph the
    function runs as it is, since compiling it for every new shape would take longer. The other
    backends compile the whole step anyway.

    Example:
        >>> @fused
        ... def gelu_sum(x, y):
        ...     return keras.ops.gelu(x) + keras.ops.gelu(y)
    """
    if keras.backend.backend() != "tensorflow":
        return function
    import tensorflow as tf

    from keras_transformer.fast.xla_flags import set_xla_flags

    # Apart, because `fused_sum_of_rows` builds different graphs.
    compiled = {
        value: tf.function(function, jit_compile=True, autograph=False) for value in (False, True)
    }

    def with_tensors(*args):  # `compiled` takes no variables of a strategy
        args = [value_of(x) if tf.is_tensor(x) else x for x in args]
        if tf.executing_eagerly():
            return function(*args)
        set_xla_flags()
        return compiled[runs_op_by_op()](*args)

    return functools.wraps(function)(with_tensors)


def custom_gradient(function: Callable) -> Callable:
    """Applies `keras.ops.custom_gradient`, whose upstream gradient differs in form by backend.

    Args:
        function: function of tensors that returns a tensor, and a function from the gradient of
            that tensor to the gradients of the arguments. All tensors that it reads are arguments,
            also those without a gradient, which have None: `jax.checkpoint` and `jax.lax.scan`
            allow no others.

    Example:
        >>> @custom_gradient
        ... def square(x):
        ...     return x * x, lambda upstream: 2 * x * upstream
    """

    def adapted(*inputs):
        output, gradient = function(*inputs)
        if keras.backend.backend() == "torch":
            # PyTorch gives the output that is returned a reference to the gradient. If the gradient
            # had one to the same tensor, no step of a training would be freed.
            output = output.detach()

        def adapted_gradient(*args, upstream=None):
            if upstream is None:
                return gradient(args[0])
            return _on_torch(function, gradient, args, upstream)

        return output, adapted_gradient

    def of_any_mode(*inputs):
        if keras.backend.backend() == "jax":
            return _on_jax(function)(*inputs)
        return (_in_graph if builds_tensorflow_graph() else ops.custom_gradient)(adapted)(*inputs)

    return of_any_mode


def _on_jax(function):
    """Applies a custom gradient on JAX, which can also differentiate forwards (`jax.jvp`).

    The tangent of the output is a linear function of those of the inputs: forwards JAX computes it
    from the formula, backwards the custom gradient is its transpose.
    """
    import jax

    @jax.custom_jvp
    def output_of(*inputs):
        return function(*inputs)[0]

    def with_tangent(inputs, tangents):
        zero = jax.custom_derivatives.SymbolicZero  # the tangent of what is not differentiated
        moving = [i for i, tangent in enumerate(tangents) if not isinstance(tangent, zero)]

        def forwards(inputs, tangents):
            def output_of_moving(*values):
                arguments = dict(enumerate(inputs)) | dict(zip(moving, values, strict=True))
                return function(*arguments.values())[0]

            return jax.jvp(output_of_moving, tuple(inputs[i] for i in moving), tangents)[1]

        def backwards(inputs, upstream):
            gradients = function(*inputs)[1](upstream)
            gradients = gradients if isinstance(gradients, tuple | list) else (gradients,)
            return tuple(gradients[i] for i in moving)

        output = output_of(*inputs)
        if not moving:
            return output, ops.zeros_like(output)
        tangents = tuple(tangents[i] for i in moving)
        return output, jax.custom_derivatives.linear_call(forwards, backwards, inputs, tangents)

    output_of.defjvp(with_tangent, symbolic_zeros=True)
    return output_of


def _on_torch(function, gradient, inputs, upstream):
    """Computes a custom gradient on PyTorch, or that of the formula if it is differentiated again.

    The custom gradient would take what it keeps of the forward pass, such as a mean, for constant.
    """
    import torch

    if not torch.is_grad_enabled():
        return gradient(upstream)
    # Views, because an input may have been computed from another one.
    inputs = [x.view_as(x) for x in inputs]
    moving = [i for i, x in enumerate(inputs) if x.requires_grad]
    gradients = torch.autograd.grad(
        function(*inputs)[0], [inputs[i] for i in moving], upstream, create_graph=True
    )
    by_input = dict(zip(moving, gradients, strict=True))
    return tuple(by_input.get(i) for i in range(len(inputs)))


def without_gradient(function: Callable) -> Callable:
    """A function of which PyTorch records nothing to differentiate; elsewhere the same function."""
    if keras.backend.backend() != "torch":
        return function
    import torch

    return torch.no_grad()(function)


def builds_tensorflow_graph() -> bool:
    """Whether the calling code adds to a graph of TensorFlow, instead of computing values."""
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return not tf.executing_eagerly()


def _in_graph(function):
    """Applies a custom gradient in a graph of TensorFlow, and does not outlive this graph.

    `tf.custom_gradient` registers each gradient for the whole process, and a gradient refers to
    its graph: no graph would ever be freed. Here, the registered function calls the gradient that
    an operation of the graph has as an attribute.
    """
    import tensorflow as tf

    def with_gradient(*inputs):
        output, gradient = function(*inputs)
        graph = tf.compat.v1.get_default_graph()
        tensors = [output, *inputs]
        types = tuple((str(x.dtype), str(x.shape)) for x in map(tf.convert_to_tensor, tensors))
        with _LOCK, graph.gradient_override_map({"IdentityN": _registered_gradient(types)}):
            output, *_ = tf.identity_n(tensors)
        output.op.keras_transformer_gradient = gradient
        return output

    # A tape knows of overridden gradients in functions only. A partial, because TensorFlow counts
    # the traces of all functions with the same code, and warns about many.
    return tf.function(functools.partial(with_gradient), autograph=False)


@functools.cache
def _registered_gradient(types):
    """Registers the gradient of `_in_graph` for tensors of these types; returns its name.

    Each has its own name, because TensorFlow saves one gradient for all operations of a name.
    """
    import tensorflow as tf

    name = f"KerasTransformerGradient{next(_NUMBERS)}"

    @tf.RegisterGradient(name)
    def gradient_of(operation, upstream, *others):
        gradient = getattr(operation, "keras_transformer_gradient", None)
        if gradient is None:  # saving or loading a graph: differentiate the formula itself
            return [upstream, *[None] * len(others)]
        return [None, *tf.nest.flatten(gradient(upstream))]

    return name


def value_of(variable):
    """Converts a variable to a tensor, for functions with a custom gradient."""
    if keras.backend.backend() != "tensorflow":
        return ops.convert_to_tensor(variable)
    import tensorflow as tf

    return tf.convert_to_tensor(ops.convert_to_tensor(variable))  # Keras's leaves it a variable


def sum_dtype(x) -> str:
    """The dtype of sums for a tensor or metric `x`: float32, or float64 if its dtype is that."""
    # `result_type` of both is float32 on JAX and PyTorch.
    is_double = keras.backend.standardize_dtype(x.dtype) == "float64"
    return "float64" if is_double else "float32"
