"""Draws the history of one training run, or of several side by side, as a page and pictures.

  keras-transformer report --model_dir=runs/en-de
  keras-transformer report --model_dir=runs/a,runs/b --output=report

The page, index.html, needs no other file and no network. It shows curves over steps and over time,
sample translations, attention, options, and the commands and machines of the run.
"""

from pathlib import Path

from absl import flags

from keras_transformer import report, training
from keras_transformer.cli import quiet
from keras_transformer.cli.command import Command
from keras_transformer.cli.flags import FLAGS, check_output_folder, define_model_dirs, group, refuse
from keras_transformer.errors import UserError, expect_named


def define_flags() -> None:
    with group("Report"):
        define_model_dirs(
            "folder of a run, finished or not; several, separated by commas, to compare them",
            required=True,
        )
        flags.DEFINE_string("output", None, "folder to write to; default: MODEL_DIR/report")
        flags.DEFINE_bool("overwrite", False, "overwrite an existing report in --output")


def main():
    expect_named("model_dir", FLAGS.model_dir and all(FLAGS.model_dir))
    if FLAGS.output is None and len(FLAGS.model_dir) > 1:
        raise UserError("--output, the folder of the report, is required with several --model_dir")
    if FLAGS.output is None:
        refuse(["overwrite"] * FLAGS.overwrite, "without --output")
    else:
        page = Path(FLAGS.output) / "index.html"
        check_output_folder(FLAGS.output, [page], FLAGS.overwrite)
    quiet.find_devices()
    model_dirs = [training.ModelDir(path) for path in FLAGS.model_dir]
    print(report.write_report(model_dirs, FLAGS.output, FLAGS.overwrite))


COMMAND = Command(main, __doc__)
