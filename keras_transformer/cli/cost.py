"""Reports the cost of training a model: parameters, floating-point operations, time.

  keras-transformer cost --preset=base --seconds_per_step=0.4
  keras-transformer cost --preset=big --d_ff=8192 --hardware=1.2e14 --devices=4
  keras-transformer cost --model_dir=runs/en-de --hardware=1e11 --devices=1 --seconds_per_step=0.5
  keras-transformer cost --table2

The report counts the operations of all matrix products; a backward pass takes twice as many as a
forward pass. With --seconds_per_step it also estimates them as the paper does: time x devices x
sustained rate.
"""

from absl import flags

from keras_transformer import training
from keras_transformer.cli import quiet
from keras_transformer.cli.command import Command
from keras_transformer.cli.flags import (
    FLAGS,
    define_record_flags,
    given_fields,
    group,
    present,
    refuse,
)
from keras_transformer.config import TransformerConfig
from keras_transformer.options import TrainingOptions
from keras_transformer.presets import PRESETS
from keras_transformer.training import table2
from keras_transformer.training.cost import SUSTAINED_FLOPS, Hardware, Workload, cost_report

OR_ELSE = "; default: as in the preset or the model_dir"


def define_flags() -> None:
    with group("Cost"):
        flags.DEFINE_string(
            "preset", None, f"model to report on: {', '.join(PRESETS)}; default: base"
        )
        flags.DEFINE_string("model_dir", None, "folder of a trained model, instead of a preset")
        flags.DEFINE_bool("table2", False, "print only the paper's Table 2 beside our figures")
        flags.DEFINE_string(
            "hardware",
            "P100",
            f"device that trains: {', '.join(SUSTAINED_FLOPS)}, or the operations per second it "
            "sustains",
        )
        flags.DEFINE_integer("devices", 8, "number of devices")
        flags.DEFINE_float(
            "seconds_per_step",
            None,
            "measured seconds per update; in the paper 0.4 for base and 1.0 for big",
        )
        flags.DEFINE_integer("steps", None, f"number of updates{OR_ELSE}")
        flags.DEFINE_integer(
            "tokens_per_batch",
            None,
            f"number of source tokens, and of target tokens, in a batch{OR_ELSE}",
        )
        for side in ("source", "target"):
            flags.DEFINE_integer(
                f"{side}_length",
                None,
                f"number of tokens of a {side} sentence; default: the mean of the training data "
                f"of --model_dir, else {table2.LENGTH}",
            )
    with group("Model"):
        define_record_flags(
            TransformerConfig,
            leave_out=("pad_id", "start_id", "end_id"),
            or_else=", or the preset's",
        )


def main():
    quiet.find_devices()
    if FLAGS.table2:
        names = ("preset", "model_dir", *fields(), *training_flags())
        refuse(present(names), "with --table2, which has its own")
        return print(table2.table2())
    if FLAGS.model_dir is None:
        preset = FLAGS.preset or "base"
        config = TransformerConfig.from_preset(preset, **given_fields(TransformerConfig))
        options, lengths = (
            TrainingOptions(**PRESETS[preset].training),
            (table2.LENGTH, table2.LENGTH),
        )
    else:
        refuse(present(("preset", *fields())), "with --model_dir, which has its own")
        model_dir = training.ModelDir(FLAGS.model_dir)
        config, record = model_dir.load_config(), model_dir.load_training()
        options, lengths = TrainingOptions(**record["options"]), mean_lengths(record["data"])
    work = Workload(
        config,
        steps=given("steps", options.steps),
        tokens_per_batch=given("tokens_per_batch", options.tokens_per_batch),
        source_length=given("source_length", lengths[0]),
        target_length=given("target_length", lengths[1]),
        passes=2 if options.r_drop else 1,
    )
    print(cost_report(work, Hardware(FLAGS.hardware, FLAGS.devices, FLAGS.seconds_per_step)))


def fields():
    return given_fields(TransformerConfig)


def training_flags():
    names = ("steps", "tokens_per_batch", "source_length", "target_length", "seconds_per_step")
    return (*names, "hardware", "devices")


def given(name, default):
    return default if FLAGS[name].value is None else FLAGS[name].value


def mean_lengths(data):
    """Mean lengths of a model's training sentences; if they are not known, those of Table 2."""
    if not data.keys() >= {"kept", "source_tokens", "target_tokens"}:
        return table2.LENGTH, table2.LENGTH
    return tuple(round(data[f"{side}_tokens"] / data["kept"]) for side in ("source", "target"))


COMMAND = Command(main, __doc__)
