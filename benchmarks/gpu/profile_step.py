"""Prints the operations that take the time of a training step, by TensorFlow's profiler.

python benchmarks/gpu/profile_step.py --size=base --batch=390x64 --compiled=true
"""

import collections
import glob
import tempfile

import tensorflow as tf
from absl import app, flags
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from benchmarks import train as benchmark

flags.DEFINE_string("size", "base", "preset")
flags.DEFINE_bool("compiled", True, "whether XLA compiles the whole step")
flags.DEFINE_integer("steps", 5, "number of steps in the profile")
flags.DEFINE_integer("lines", 25, "number of operations printed")
FLAGS = flags.FLAGS


def profile(folder):
    """Writes the profile of some steps, after two that compile."""
    model = benchmark.training_model(FLAGS.size, "mixed_bfloat16", FLAGS.compiled)
    model.announce = lambda text: None
    model.make_train_function()
    batch = tf.nest.map_structure(tf.constant, benchmark.random_batch(FLAGS.size))

    def step():
        return float(model.train_function(benchmark.iter_of(batch))["loss"])

    step(), step()
    with tf.profiler.experimental.Profile(folder):
        for _ in range(FLAGS.steps):
            step()


def device_planes(folder):
    """The planes of the GPUs; without one, that of the host's threads."""
    [path] = glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)
    space = xplane_pb2.XSpace()
    with open(path, "rb") as file:
        space.ParseFromString(file.read())
    on_gpu = [plane for plane in space.planes if plane.name.startswith("/device:GPU")]
    return on_gpu or [plane for plane in space.planes if plane.name == "/host:CPU"]


def main(_):
    with tempfile.TemporaryDirectory() as folder:
        profile(folder)
        planes = device_planes(folder)
    times, counts = collections.Counter(), collections.Counter()
    for plane in planes:
        for line in plane.lines:
            if "stream" not in line.name.lower() and plane.name.startswith("/device:GPU"):
                continue  # a summary of the streams' lines
            for event in line.events:
                name = plane.event_metadata[event.metadata_id].name
                times[name] += event.duration_ps / 1e9 / FLAGS.steps
                counts[name] += 1
    total = sum(times.values())
    print(f"{planes[0].name}: {total:.1f} ms a step in all")
    for name, ms in times.most_common(FLAGS.lines):
        times_a_step = counts[name] / FLAGS.steps
        print(f"{ms:9.3f} ms {ms / total:5.1%} {times_a_step:7.0f} times  {name[:90]}")


if __name__ == "__main__":
    app.run(main)
