"""`translate --runner`: translates files on a cluster with Apache Beam (an optional extra)."""

import argparse
import difflib
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from absl import flags, logging

from keras_transformer.cli.flags import FLAGS, GROUPS, group, present, refuse
from keras_transformer.errors import UserError, expect_named

_GROUP = "Files on a cluster"
_FILES = ("input", "output")  # which `cli/lines.py` defines
_ALSO_TAKEN = ("lines_at_once", *_FILES)

# Beam's flags typed among our own, and the flags typed after `--`, which only the runner knows.
_beam_flags: list[str] = []
_runner_flags: list[str] = []


def define_flags() -> None:
    """Defines the flags with which `translate` translates files on a cluster."""
    with group(_GROUP):
        flags.DEFINE_string(
            "runner",
            None,
            "runner of Apache Beam that translates files: DirectRunner (this machine), "
            "FlinkRunner, SparkRunner, DataflowRunner; takes Beam's own flags too, and after `--` "
            "flags that only the runner knows",
        )
        flags.DEFINE_string(
            "saved_model", None, "exported model, which replaces --model_dir and search flags"
        )


def parse_flags(argv: Sequence[str]) -> list[str]:
    """Reads flags as `flags.FLAGS` does; with `--runner`, keeps unknown flags for Beam.

    Args:
        argv: the program and its command-line arguments.

    Returns:
        The program, and the arguments that are not flags.

    Raises:
        flags.Error: a flag cannot be read, or `--model_dir` is missing.
    """
    end = list(argv).index("--") if "--" in argv else len(argv)
    FLAGS.set_gnu_getopt(True)  # our flags may follow `--parallelism 4`
    try:
        program, *_beam_flags[:] = FLAGS(argv[:end], known_only=True)
    finally:
        FLAGS.set_gnu_getopt(False)
    if FLAGS.runner is not None:
        _runner_flags[:] = argv[end + 1 :]
        return [program]
    # Only what is left: a flag that may be repeated, or a pipe of flags, is read once.
    others = FLAGS([program, *_beam_flags, *argv[end:]])
    if FLAGS.model_dir is None:
        raise flags.Error(f"--model_dir is required; see {program} --help")
    return others


def refuse_flags_for_files() -> None:
    """Refuses the flags of this module without `--runner`.

    Raises:
        UserError: one of them is given.
    """
    refuse(present(GROUPS[_GROUP]), "without --runner")


def main() -> None:
    """Runs the job that the flags describe, and prints its counters.

    Raises:
        UserError: the flags contradict each other, or a file cannot be read or written.
    """
    if not FLAGS["verbosity"].present:
        logging.set_verbosity(logging.FATAL)  # Beam also logs the errors that it raises
    from keras_transformer.beam.translate_files import TranslateFiles, beam

    refuse(_flags_for_lines(), "with --runner, since the exported model has its options")
    for name in (*GROUPS[_GROUP], *_FILES):
        expect_named(name, FLAGS[name].value)
    _check_runner(FLAGS.runner)
    _check_beam_flags(_beam_flags)
    options = beam.options.pipeline_options.PipelineOptions(
        [f"--runner={FLAGS.runner}", *_beam_flags, *_runner_flags]
    )
    job = TranslateFiles(FLAGS.saved_model, FLAGS.input, FLAGS.output, FLAGS.lines_at_once)
    try:
        pipeline = beam.Pipeline(options=options)
    except ValueError as error:  # a flag that the runner needs is missing
        raise UserError(f"--runner={FLAGS.runner}: {error}") from error
    try:
        with pipeline:
            _ = pipeline | job
    except Exception as error:
        # Beam appends the name of a step to a worker's error. From another process, it is text.
        found = re.search(r"UserError: (.*)", f"{type(error).__name__}: {error}")
        if not found:
            raise
        raise UserError(found[1].partition(" [while running ")[0]) from error
    print(_report(pipeline.result, job.failed))


def _flags_for_lines():
    """The given flags that only apply to standard input or a model_dir."""
    names = [name for heading in GROUPS if heading != _GROUP for name in GROUPS[heading]]
    return [name for name in present(names) if name not in _ALSO_TAKEN]


def _check_runner(name):
    from apache_beam.runners import create_runner

    try:
        create_runner(name)
    except (ImportError, ValueError, AttributeError) as error:
        raise UserError(f"--runner={name} is not a runner of Apache Beam: {error}") from error


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(message)


def _check_beam_flags(given):
    """Refuses flags that no part of Beam knows: Beam itself would only warn and drop them."""
    from apache_beam.options.pipeline_options import PipelineOptions

    parsers: list[argparse.ArgumentParser] = []
    PipelineOptions([]).get_all_options(add_extra_args_fn=parsers.append)
    parser = _Parser(
        parents=parsers, allow_abbrev=False, add_help=False, conflict_handler="resolve"
    )
    _, unknown = parser.parse_known_args(given)
    if not unknown:
        return
    name = unknown[0].partition("=")[0]
    if not name.startswith("-"):
        raise UserError(f"{name!r} is not a flag")
    known = [f"--{name}" for name in (*GROUPS[_GROUP], *_FILES)]
    known += re.findall(r"--[\w-]+", parser.format_help())
    nearest = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {nearest[0]}? " if nearest else ""
    raise UserError(
        f"unknown flag {name}; {hint}Flags that the runner alone knows stand after `--`"
    )


def _report(result: Any, failed: str) -> str:
    """The counters of a job, in one line."""
    from keras_transformer.beam.translate_text import COUNTERS

    if result.state != "DONE":
        return f"the job is {result.state}"
    counters = result.metrics().query()["counters"]
    lines, tokens, failures = (
        sum(counter.result for counter in counters if counter.key.metric.name == name)
        for name in COUNTERS
    )
    return f"lines: {lines}, tokens: {tokens}, failures: {failures}" + (
        f", in {failed}" if failures else ""
    )
