"""Measures the figures of the paper's Table 1: time, memory and path length of each layer type.

  python benchmarks/table1.py --output=figures

Each layer runs forward and backward, over lengths n at one width and over widths d at one length.
Time is the processor time of one thread, which other work on the machine hardly changes. The result
is the median of several processes. Exponents are least-squares slopes between logarithms. d varies
at a length where the formula's term dominates (attention: n far above d). Attention has heads of
width 32, so that their number grows with d.

Path length: a gradient starts at the first position of the output, and passes back through layer
after layer until it reaches the last position of the input.
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

flags.DEFINE_string("output", None, "folder for the plots", required=True)
flags.DEFINE_integer(
    "rounds", 3, "number of processes that measure each layer type over n, and over d"
)
flags.DEFINE_float("seconds", 1, "minimum seconds of processor time for each process and size")
flags.DEFINE_integer("radius", 64, "radius r of restricted attention")
flags.DEFINE_integer("kernel_size", 5, "kernel size k of convolutions")
flags.DEFINE_string("job", None, "used by this script: what to measure, as JSON")
FLAGS = flags.FLAGS

D, LENGTHS = 64, (512, 1024, 2048, 4096, 8192)
N_OF_ATTENTION, WIDTHS_OF_ATTENTION = 4096, (32, 64, 128, 256)
N_OF_OTHERS, WIDTHS_OF_OTHERS = 256, (128, 256, 512, 1024)
PATH_LENGTHS, PATH_RADIUS, PATH_KERNEL_SIZE = (16, 32, 64, 128, 256), 4, 3

# For each layer type: complexity, and maximum path length when layers are stacked as here.
FORMULAS = {
    "self-attention": ("n^2 d", "1"),
    "recurrent": ("n d^2", "n"),
    "convolutional": ("k n d^2", "n / k"),
    "separable": ("k n d + n d^2", "n / k"),
    "restricted": ("r n d", "n / r"),
}
DILATED = "convolutional, dilated"


def new_layer(name, d, radius, kernel_size, depth=0):
    from keras_transformer import layers

    heads = max(1, d // 32)
    layer = {
        "self-attention": lambda: layers.SelfAttention(d, heads),
        "recurrent": lambda: layers.Recurrence(d, causal=True),
        "convolutional": lambda: layers.Convolution(d, kernel_size),
        "separable": lambda: layers.Convolution(d, kernel_size, separable=True),
        "restricted": lambda: layers.RestrictedSelfAttention(d, heads, radius=radius),
        DILATED: lambda: layers.Convolution(
            d, kernel_size, causal=True, dilation_rate=kernel_size**depth
        ),
    }[name]()
    layer.build((None, None, d))
    return layer


def cases(name):
    """The pairs (n, d) for measuring a layer: over n, and over d."""
    attention = "attention" in name or name == "restricted"
    n = N_OF_ATTENTION if attention else N_OF_OTHERS
    widths = WIDTHS_OF_ATTENTION if attention else WIDTHS_OF_OTHERS
    return [(length, D) for length in LENGTHS], [(n, d) for d in widths]


def forward_and_backward(name, n, d):
    """A function that computes a layer and all of its gradients."""
    import tensorflow as tf

    layer = new_layer(name, d, FLAGS.radius, FLAGS.kernel_size)
    x = tf.random.normal((1, n, d))

    @tf.function
    def run():
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(layer(x, training=True) ** 2)
        return tape.gradient(total, [x, *layer.trainable_variables])

    return run


def seconds_of(run):
    run()
    times = []
    while sum(times) < FLAGS.seconds:
        begin = time.process_time()
        run()
        times.append(time.process_time() - begin)
    return statistics.median(times)


def mebibytes(what):
    return int(Path("/proc/self/status").read_text().partition(what)[2].split()[0]) / 1024


def path_length(name, n):
    """The number of layers (recurrent: of steps) between both ends of a sequence."""
    import tensorflow as tf

    d, rng = 8, np.random.default_rng(0)
    handed_back = np.eye(1, n)[..., None] * rng.normal(size=d)
    depth = 0
    while not np.any(handed_back[0, -1]):
        layer = new_layer(name, d, PATH_RADIUS, PATH_KERNEL_SIZE, depth)
        if name == "recurrent":
            layer = one_step(layer)
        if name == DILATED:
            layer = backwards(layer)
        x = tf.constant(rng.normal(size=(1, n, d)), "float32")
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x)
        gradient = tape.gradient(y, x, tf.constant(handed_back, "float32"))
        # Only its position matters, not its size.
        handed_back = np.where(gradient != 0, rng.normal(size=(1, n, d)), 0)
        depth += 1
    return depth


def backwards(layer):
    """Reverses a causal layer, so that it looks ahead: from the first position to the last."""
    from keras import ops

    return lambda x: ops.flip(layer(ops.flip(x, axis=1)), axis=1)


def one_step(layer):
    """The path of one step of a recurrent layer, from a position to the next."""
    from keras import ops

    def call(states):
        past = ops.pad(states[0, 1:], [(0, 1), (0, 0)])
        state, _ = layer.forward.cell(ops.zeros_like(past), [past])
        return state[None]

    return call


def do(name, axis):
    """Seconds and MiB of each case of a sweep, in the process that `measured` starts for it.

    Memory is the peak above the memory held at first. A case may reuse what earlier cases freed, so
    each must need more than those before.
    """
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    forward_and_backward(name, 16, 32)()
    before = mebibytes("VmRSS:")
    return [
        (seconds_of(forward_and_backward(name, n, d)), mebibytes("VmHWM:") - before)
        for n, d in cases(name)[axis]
    ]


def measured(name, axis):
    """The medians over several processes: {"seconds": [...], "MiB": [...]}."""
    given = [f"--{key}={FLAGS[key].value}" for key in ("seconds", "radius", "kernel_size")]
    command = [sys.executable, __file__, "--output=", f"--job={json.dumps([name, axis])}", *given]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    rounds = []
    for i in range(FLAGS.rounds):
        print(f"{name}, over {'nd'[axis]}, round {i + 1}", file=sys.stderr)
        child = subprocess.run(command, env=environment, capture_output=True, text=True)
        if child.returncode:
            raise RuntimeError(child.stderr)
        rounds.append(json.loads(child.stdout.splitlines()[-1]))
    seconds, memory = np.median(rounds, axis=0).T.tolist()
    return {"seconds": seconds, "MiB": memory}


def slope(x, y):
    """The exponent e of y = c x^e, by least squares between logarithms."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def exponents_of(name, values, what):
    """The measured exponents of n and d, as text."""
    return [
        f"{'nd'[axis]}^{slope([case[axis] for case in cases(name)[axis]], values[axis][what]):.2f}"
        for axis in (0, 1)
    ]


def draw(folder, results, paths):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    def finish(figure, name):
        for ax in figure.axes:
            ax.set_xscale("log", base=2)
            ax.set_yscale("log")
            ax.grid(alpha=0.3)
        figure.axes[0].legend(fontsize="small")
        figure.tight_layout()
        figure.savefig(folder / name, dpi=120)
        plt.close(figure)

    for what, label, file in (
        ("seconds", "seconds, forward and backward", "time.png"),
        ("MiB", "memory in MiB, forward and backward", "memory.png"),
    ):
        figure, axes = plt.subplots(1, 2, figsize=(11, 4.5), sharey=True)
        for name, values in results.items():
            exponents = exponents_of(name, values, what)
            for axis, ax in enumerate(axes):
                xs = [case[axis] for case in cases(name)[axis]]
                ax.plot(xs, values[axis][what], "o-", label=f"{name}: {exponents[axis]}")
        axes[0].set(xlabel=f"length n (d = {D})", ylabel=label)
        axes[1].set(
            xlabel=f"width d (n = {N_OF_ATTENTION} for attention, {N_OF_OTHERS} for others)"
        )
        axes[1].legend(fontsize="small")
        finish(figure, file)
    figure, ax = plt.subplots(figsize=(6.5, 4.5))
    for size, (name, lengths) in zip(range(14, 2, -2), paths.items(), strict=True):
        # Some points coincide: draw rings inside one another.
        ax.plot(PATH_LENGTHS, lengths, "o-", markersize=size, label=name)
    ax.set(
        xlabel="length n",
        ylabel=f"maximum path length (r = {PATH_RADIUS}, k = {PATH_KERNEL_SIZE})",
    )
    finish(figure, "path_length.png")


def main(argv):
    if FLAGS.job:
        print(json.dumps(do(*json.loads(FLAGS.job))))
        return
    folder = Path(FLAGS.output)
    folder.mkdir(parents=True, exist_ok=True)
    results = {name: [measured(name, axis) for axis in (0, 1)] for name in FORMULAS}
    print("path length", file=sys.stderr)
    paths = {name: [path_length(name, n) for n in PATH_LENGTHS] for name in (*FORMULAS, DILATED)}

    print("| layer | paper | time | memory | seconds, n = " + ", ".join(map(str, LENGTHS)) + " |")
    print("|---|---|---|---|---|")
    for name, values in results.items():
        exponents = {what: " ".join(exponents_of(name, values, what)) for what in values[0]}
        seconds = ", ".join(f"{x:.3g}" for x in values[0]["seconds"])
        print(
            f"| {name} | {FORMULAS[name][0]} | {exponents['seconds']} | {exponents['MiB']} "
            f"| {seconds} |"
        )
    print("\n| layer | paper | path length, n = " + ", ".join(map(str, PATH_LENGTHS)) + " |")
    print("|---|---|---|")
    for name, lengths in paths.items():
        formula = FORMULAS[name][1] if name in FORMULAS else "log_k n"
        print(f"| {name} | {formula} | {', '.join(map(str, lengths))} |")
    draw(folder, results, paths)


if __name__ == "__main__":
    app.run(main)
