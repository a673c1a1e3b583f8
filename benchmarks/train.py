"""Times training: target tokens per second, and the parts of a step.

  python benchmarks/train.py                    # base and tiny, full batches of random ids
  python benchmarks/train.py --sizes=tiny --train_source=train.en --train_target=train.de  # text
  KERAS_BACKEND=jax python benchmarks/train.py --sizes=base,big --precisions=mixed_bfloat16

Contestants take turns, each in its own process; the output is the median of the rounds. Shares are
relative to the machine's fastest matrix product in the same precision, measured in the same run.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from absl import app, flags

flags.DEFINE_list("sizes", ["base", "tiny"], "presets")
flags.DEFINE_list("precisions", ["float32", "mixed_bfloat16"], "precisions of matrix products")
flags.DEFINE_list("jit_compile", ["false", "true"], "whether XLA compiles the whole step")
flags.DEFINE_string("batch", None, "batch shape, rows x length, such as 64x32; default by preset")
flags.DEFINE_integer("vocab_size", None, "vocabulary size; default by preset")
flags.DEFINE_string("train_source", None, "text file to train on, instead of random ids")
flags.DEFINE_string("train_target", None, "translations of --train_source, line by line")
flags.DEFINE_integer("tokens_per_batch", 4096, "number of tokens in a batch of text")
flags.DEFINE_integer("replicas", 1, "number of devices; logical ones without GPUs")
flags.DEFINE_integer(
    "parallel_parts", None, "parts of a batch computed in parallel; default: as in training"
)
flags.DEFINE_integer("rounds", 3, "number of runs of each contestant")
flags.DEFINE_float("seconds", 10, "minimum seconds of each timed window")
flags.DEFINE_bool("parts", True, "also time the parts of a step by themselves (TensorFlow)")
flags.DEFINE_string("contestant", None, "used by this script: the one to run, as JSON")
FLAGS = flags.FLAGS

BATCHES = {"tiny": (128, 16), "base": (64, 32), "big": (64, 32)}
VOCABULARY = {"tiny": 10_000}


def batch_shape(size):
    return tuple(map(int, FLAGS.batch.split("x"))) if FLAGS.batch else BATCHES.get(size, (64, 32))


def vocab_size(size):
    return FLAGS.vocab_size or VOCABULARY.get(size, 32_000)


def parallel_parts(size, jit_compile):
    from keras_transformer import TransformerConfig
    from keras_transformer.machine.cores import parts_for_cores

    if FLAGS.parallel_parts:
        return FLAGS.parallel_parts
    if jit_compile or FLAGS.replicas > 1:
        return 1
    rows, length = batch_shape(size)
    tokens = FLAGS.tokens_per_batch if FLAGS.train_source else rows * length
    return parts_for_cores(TransformerConfig.from_preset(size).d_model, tokens)


def training_model(size, precision, jit_compile, parts=1):
    import keras

    import keras_transformer as kt

    keras.utils.set_random_seed(1)
    # Post-norm, like the peers' models.
    config = kt.TransformerConfig.from_preset(size, vocab_size=vocab_size(size), pre_norm=False)
    schedule = kt.InverseSquareRootSchedule(config.d_model, 4000)
    optimizer = keras.optimizers.Adam(schedule, beta_2=0.98, epsilon=1e-9)
    if keras.backend.backend() != "tensorflow":
        model = kt.Transformer(config, dtype=precision)
        model.compile(optimizer, kt.LabelSmoothedCrossEntropy(config.label_smoothing))
        return model
    from keras_transformer.training import TrainableTransformer, make_strategy

    with make_strategy("mirrored" if FLAGS.replicas > 1 else "one_device").scope():
        model = TrainableTransformer(config, parallel_parts=parts, dtype=precision)
        model.build()
        model.compile(optimizer, jit_compile=jit_compile)
    return model


def random_batch(size):
    rows, length = batch_shape(size)
    source, labels = np.random.default_rng(1).integers(4, vocab_size(size), (2, rows, length))
    source[:, -1] = labels[:, -1] = 2
    target = np.concatenate([np.ones((rows, 1), int), labels[:, :-1]], axis=1)
    inputs = {"source_ids": source.astype("int32"), "target_ids": target.astype("int32")}
    return inputs, labels.astype("int32")


def text_batches():
    from keras_transformer.data import Batches, Corpus, TextPairs
    from keras_transformer.text import SubwordTokenizer

    files = [FLAGS.train_source, FLAGS.train_target]
    tokenizer = SubwordTokenizer.train(files, vocab_size("tiny"))
    corpus = Corpus.build(TextPairs(*files), tokenizer)
    multiple = FLAGS.replicas
    return Batches(corpus, FLAGS.tokens_per_batch, seed=1, batch_multiple=multiple)


class Clock:
    """Counts the target tokens, and the operations, of steps in a window."""

    def __init__(self, config):
        self.config = config
        self.tokens = self.flops = self.steps = 0

    def add(self, labels):
        from keras_transformer.training.cost import training_flops

        rows, length = labels.shape
        self.tokens += int(np.count_nonzero(labels))
        self.flops += training_flops(self.config, rows, length, length)
        self.steps += 1


def timed_steps(model, step, batches, warm_up):
    """Figures of a window of steps, after some steps that compile."""
    for _ in range(warm_up):
        step(next(batches))
    clock, start = Clock(model.config), time.perf_counter()
    while time.perf_counter() - start < FLAGS.seconds or clock.steps < 3:
        batch = next(batches)
        float(step(batch)["loss"])
        clock.add(np.asarray(batch[1]))
    seconds = time.perf_counter() - start
    status = Path("/proc/self/status").read_text()
    return {
        "tokens/s": clock.tokens / seconds,
        "ms a step": 1000 * seconds / clock.steps,
        "GFLOP/s": clock.flops / seconds / 1e9,
        "MiB": int(status.partition("VmHWM:")[2].split()[0]) / 1024,
    }


def run_tensorflow(size, precision, jit_compile):
    import tensorflow as tf

    from keras_transformer.machine.cores import share_cores

    parts = parallel_parts(size, jit_compile)
    share_cores(parts)
    if FLAGS.replicas > 1 and not tf.config.list_physical_devices("GPU"):
        cpu = tf.config.list_physical_devices("CPU")[0]
        devices = [tf.config.LogicalDeviceConfiguration()] * FLAGS.replicas
        tf.config.set_logical_device_configuration(cpu, devices)
    from keras_transformer.training import replica_batches

    model = training_model(size, precision, jit_compile, parts)
    if FLAGS.train_source:
        batches = text_batches()
        warm_up = min(batches.batches_per_epoch, 150)  # all shapes, most likely
        dataset = batches.dataset()
    else:
        warm_up = 2
        dataset = tf.data.Dataset.from_tensors(random_batch(size)).repeat()
    model.announce = lambda text: None
    model.make_train_function()
    if FLAGS.replicas > 1:
        distributed = iter(replica_batches(dataset, model.distribute_strategy, 0))
        step = lambda batch: model.train_function(distributed)  # noqa: E731
    else:
        step = lambda batch: model.train_function(iter_of(batch))  # noqa: E731
    figures = timed_steps(model, step, iter(dataset), warm_up)
    if FLAGS.parts and not jit_compile and FLAGS.replicas == 1 and not FLAGS.train_source:
        figures["parts"] = timed_parts(model, size, precision)
    if FLAGS.train_source:
        start, count = time.perf_counter(), 0
        for _ in dataset.take(200):
            count += 1
        figures["ms of input alone"] = 1000 * (time.perf_counter() - start) / count
    return {**figures, "ceiling": tensorflow_ceiling(model, size, precision)}


class iter_of:
    """An iterator over one batch, for `train_function`."""

    def __init__(self, batch):
        import tensorflow as tf

        self.batch = batch
        shape = tf.TensorSpec([None, None], tf.int32)
        self.element_spec = ({"source_ids": shape, "target_ids": shape}, shape)

    def __iter__(self):
        return self

    def __next__(self):
        return self.batch


def seconds_of(run, at_least=0.5):
    """Median time of a call."""
    run()
    times, start = [], time.perf_counter()
    while time.perf_counter() - start < at_least or len(times) < 5:
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def products(config, rows, length):
    """The matrix products of a forward pass: (left, right) shapes, and their counts."""
    n, d, dff = rows * length, config.d_model, config.d_ff
    keys, values = config.num_heads * config.d_k, config.num_heads * config.d_v
    encoders, decoders = config.num_encoder_layers, config.num_decoder_layers
    attentions = encoders + 2 * decoders
    heads = (rows, config.num_heads)
    return [
        ((n, d), (d, keys), 2 * attentions),
        ((n, d), (d, values), attentions),
        ((n, values), (values, d), attentions),
        ((n, d), (d, dff), encoders + decoders),
        ((n, dff), (dff, d), encoders + decoders),
        ((n, d), (d, config.vocab_size), 1),
        ((*heads, length, config.d_k), (*heads, config.d_k, length), attentions),
        ((*heads, length, length), (*heads, length, config.d_v), attentions),
    ]


def tensorflow_ceiling(model, size, precision):
    """GFLOP/s of the fastest product of a step, in as many parts as the step."""
    import tensorflow as tf

    dtype = tf.bfloat16 if precision == "mixed_bfloat16" else tf.float32
    rates = []
    for left, right, _ in products(model.config, *batch_shape(size))[:6]:
        a, b = (tf.cast(tf.random.normal(shape), dtype) for shape in (left, right))
        multiply = tf.function(lambda a, b: [tf.matmul(part, b) for part in a])
        a = tf.split(a, model.parallel_parts)
        seconds = seconds_of(lambda m=multiply, a=a, b=b: m(a, b))
        rates.append(2 * left[0] * left[1] * right[1] / seconds / 1e9)
    return max(rates)


def timed_parts(model, size, precision):
    """Milliseconds of each part of a step on its own, forward and backward."""
    import keras
    import tensorflow as tf

    from keras_transformer.fast.losses import fused_smoothed_cross_entropy
    from keras_transformer.layers import Dropout, LayerNormalization

    config, (rows, length) = model.config, batch_shape(size)
    dtype = tf.as_dtype(keras.dtype_policies.get(precision).compute_dtype)
    blocks = 2 * config.num_encoder_layers + 3 * config.num_decoder_layers
    x = tf.cast(tf.random.normal((rows, length, config.d_model)), dtype)
    logits = tf.cast(tf.random.normal((rows, length, config.vocab_size)), dtype)
    labels = tf.constant(random_batch(size)[1][: rows // model.parallel_parts])

    def both_ways(function, x, *shared):
        @tf.function(autograph=False)
        def run(parts):
            gradients = []
            for part in parts:
                inputs = (part, *shared)
                with tf.GradientTape() as tape:
                    tape.watch(inputs)
                    output = function(*inputs)
                gradients += tape.gradient(output, inputs, output_gradients=tf.ones_like(output))
            return gradients

        parts = tf.split(x, model.parallel_parts)
        return 1000 * seconds_of(lambda: run(parts))

    product_times = []
    for left, right, count in products(config, rows, length):
        a, b = (tf.cast(tf.random.normal(shape), dtype) for shape in (left, right))
        if len(left) == 4:  # attention's: each part has its own
            a, b = (tf.split(x, model.parallel_parts)[0] for x in (a, b))
            a = tf.concat([a] * model.parallel_parts, axis=0)
        product_times.append(count * both_ways(tf.matmul, a, b))
    norm = LayerNormalization(dtype=precision)
    norm.build(x.shape)
    dropout = Dropout(config.dropout, dtype=precision)
    gradients = [tf.zeros(weight.shape) for weight in model.trainable_weights]
    update = tf.function(
        lambda: [
            model.optimizer.update_step(gradient, weight.value, 1e-9)
            for gradient, weight in zip(gradients, model.trainable_weights, strict=True)
        ],
        autograph=False,
        jit_compile=True,
    )
    return {
        "matrix products": sum(product_times),
        "softmax and loss": both_ways(
            lambda z: fused_smoothed_cross_entropy(labels, z, config.label_smoothing), logits
        ),
        "normalisation": blocks * both_ways(lambda x: norm(x, training=True), x),
        "dropout": (blocks + 2) * both_ways(lambda x: dropout(x, training=True), x),
        "optimizer": 1000 * seconds_of(update),
    }


def run_other_backend(size, precision, jit_compile):
    import jax
    import jax.numpy as jnp

    del jit_compile  # JAX always does
    model = training_model(size, precision, jit_compile=True)
    inputs, labels = random_batch(size)

    def step(batch):
        return model.train_on_batch(*batch, return_dict=True)

    batches = iter(lambda: (inputs, labels), None)
    figures = timed_steps(model, step, batches, warm_up=3)
    dtype = jnp.bfloat16 if precision == "mixed_bfloat16" else jnp.float32
    side = 8192 if jax.default_backend() == "gpu" else 2048
    a = jnp.ones((side, side), dtype)
    multiply = jax.jit(jnp.matmul)
    seconds = seconds_of(lambda: multiply(a, a).block_until_ready())
    return {**figures, "ceiling": 2 * side**3 / seconds / 1e9}


def run_contestant(size, precision, jit_compile):
    from keras_transformer.machine.memory import keep_freed_memory

    keep_freed_memory()
    import keras

    is_tensorflow = keras.backend.backend() == "tensorflow"
    run = run_tensorflow if is_tensorflow else run_other_backend
    print(json.dumps(run(size, precision, jit_compile)))


def figures_of(contestant):
    """Measures a contestant in its own process."""
    command = [sys.executable, __file__, *sys.argv[1:], f"--contestant={json.dumps(contestant)}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{contestant}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main(_):
    if FLAGS.contestant:
        run_contestant(**json.loads(FLAGS.contestant))
        return
    is_tensorflow = os.environ.get("KERAS_BACKEND", "tensorflow") == "tensorflow"
    compiled = [text == "true" for text in FLAGS.jit_compile] if is_tensorflow else [True]
    contestants = [
        {"size": size, "precision": precision, "jit_compile": jit_compile}
        for size in FLAGS.sizes
        for precision in FLAGS.precisions
        for jit_compile in compiled
    ]
    rounds = [[figures_of(contestant) for contestant in contestants] for _ in range(FLAGS.rounds)]
    for contestant, results in zip(contestants, zip(*rounds, strict=True), strict=True):
        median = {
            name: statistics.median(result[name] for result in results)
            for name in results[0]
            if name != "parts"
        }
        print(
            f"{contestant['size']}, {contestant['precision']}"
            f"{', XLA' if contestant['jit_compile'] else ''}: {median['tokens/s']:,.0f} target "
            f"tokens/s, {median['ms a step']:,.0f} ms a step, {median['MiB']:,.0f} MiB at most, "
            f"{median['GFLOP/s']:,.0f} of {median['ceiling']:,.0f} GFLOP/s "
            f"({median['GFLOP/s'] / median['ceiling']:.0%})"
        )
        if "ms of input alone" in median:
            print(f"    input alone: {median['ms of input alone']:.1f} ms a batch")
        if parts := results[0].get("parts"):
            shown = ", ".join(f"{name} {ms:,.0f}" for name, ms in parts.items())
            rest = median["ms a step"] - sum(parts.values())
            print(f"    ms by themselves: {shown}; all else {rest:,.0f}")


if __name__ == "__main__":
    app.run(main)
