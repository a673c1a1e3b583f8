"""Says what a model costs to train: parameters, floating-point operations, time.

  python cost.py --preset=base --seconds_per_step=0.4
  python cost.py --preset=big --d_ff=8192 --hardware=1.2e14 --devices=4
  python cost.py --model_dir=runs/en-de --hardware=1e11 --devices=1 --seconds_per_step=0.5
  python cost.py --table2

Operations are counted (the matrix products of the forward pass, and twice as many backwards), and
with --seconds_per_step estimated as in the paper: time x devices x sustained rate.
"""

from absl import flags

import quiet_tensorflow  # first: it silences what the others import
from keras_transformer.analysis.cost import SUSTAINED_FLOPS, cost_report
from keras_transformer.analysis.table2 import LENGTH, table2
from keras_transformer.command_line import define_record_flags, given_fields, run
from keras_transformer.config import TransformerConfig
from keras_transformer.errors import UserError
from keras_transformer.presets import PRESETS
from keras_transformer.training import ModelDir, TrainingOptions

OR_ELSE = "; default: of the preset or the model_dir"

flags.DEFINE_string("preset", None, f"one of {', '.join(PRESETS)}; default: base")
flags.DEFINE_string("model_dir", None, "folder of a trained model, instead of a preset")
flags.DEFINE_bool("table2", False, "print the paper's Table 2, with our figures, instead")
flags.DEFINE_string(
    "hardware", "P100", f"{', '.join(SUSTAINED_FLOPS)}, or a device's operations a second"
)
flags.DEFINE_integer("devices", 8, "number of devices")
flags.DEFINE_float("seconds_per_step", None, "as measured; the paper's: 0.4 of base, 1.0 of big")
flags.DEFINE_integer("steps", None, f"updates in all{OR_ELSE}")
flags.DEFINE_integer(
    "tokens_per_batch", None, f"source tokens, and target tokens, of a step{OR_ELSE}"
)
for side in ("source", "target"):
    default = f"the mean of the model_dir's data, else {LENGTH}"
    flags.DEFINE_integer(f"{side}_length", None, f"tokens of a {side} sentence; default: {default}")
define_record_flags(
    TransformerConfig, leave_out=("pad_id", "start_id", "end_id"), or_else=", or the preset's"
)
FLAGS = flags.FLAGS


def main():
    quiet_tensorflow.find_devices()
    if FLAGS.table2:
        refuse("--table2, which has its own", ("preset", "model_dir", *fields(), *training_flags()))
        return print(table2())
    if FLAGS.model_dir is None:
        preset = FLAGS.preset or "base"
        config = TransformerConfig.from_preset(preset, **given_fields(TransformerConfig))
        options, lengths = TrainingOptions(**PRESETS[preset].training), (LENGTH, LENGTH)
    else:
        refuse("--model_dir, which has its own", ("preset", *fields()))
        model_dir = ModelDir(FLAGS.model_dir)
        config, training = model_dir.load_config(), model_dir.load_training()
        options, lengths = TrainingOptions(**training["options"]), mean_lengths(training["data"])
    print(
        cost_report(
            config,
            given("steps", options.steps),
            given("tokens_per_batch", options.tokens_per_batch),
            given("source_length", lengths[0]),
            given("target_length", lengths[1]),
            FLAGS.hardware,
            FLAGS.devices,
            FLAGS.seconds_per_step,
        )
    )


def fields():
    return given_fields(TransformerConfig)


def training_flags():
    names = ("steps", "tokens_per_batch", "source_length", "target_length", "seconds_per_step")
    return (*names, "hardware", "devices")


def given(name, default):
    return default if FLAGS[name].value is None else FLAGS[name].value


def mean_lengths(data):
    """Of the sentences that a model was trained on; an imported model's are not known."""
    if not data:
        return LENGTH, LENGTH
    return tuple(round(data[f"{side}_tokens"] / data["kept"]) for side in ("source", "target"))


def refuse(why, names):
    """Refuses flags that would be ignored."""
    for name in names:
        if FLAGS[name].present:
            raise UserError(f"expected no --{name}, found with {why}")


if __name__ == "__main__":
    run(main)
