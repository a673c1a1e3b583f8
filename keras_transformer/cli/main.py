"""The command `keras-transformer`: finds the subcommand, reads its flags, reports mistakes."""

import contextlib
import difflib
import importlib
import itertools
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from absl import app, flags

from keras_transformer.cli import quiet
from keras_transformer.cli.command import Command
from keras_transformer.cli.flags import list_flags
from keras_transformer.cli.help import command_help
from keras_transformer.cli.process import (
    Terminated,
    ending_when_interrupted,
    fill_closed_streams,
    finish_output,
    print_any_text,
    raising_when_terminated,
)
from keras_transformer.errors import UserError
from keras_transformer.files import not_utf_8, read_whole
from keras_transformer.text.plain_text import plain_text

PROGRAM = "keras-transformer"
COMMANDS = {
    "train": "train a model, or resume its training",
    "corpus": "check a corpus of sentence pairs, and clean it",
    "evaluate": "evaluate a model: BLEU, chrF and perplexity, or F1 of a parser",
    "translate": "translate standard input, or files on a cluster, line by line",
    "parse": "parse standard input, line by line",
    "serve": "serve models over HTTP",
    "export": "export a model for TensorFlow Serving or CTranslate2",
    "import-marian": "convert a published Marian model to a model_dir",
    "import-m2m100": "convert a published M2M100 or NLLB model to a model_dir",
    "import-opennmt": "convert a model of OpenNMT-tf to a model_dir",
    "cost": "report the cost of training a model",
    "visualize": "draw the attention of a model",
    "report": "draw the history of a training run",
}
_HELP = ("-h", "-?", "-help", "--help", "-helpshort", "--helpshort")
_HELP_FULL = ("-helpfull", "--helpfull")
# What the errors of Python and absl say of a flag's value, and what the value must be.
_WRONG_VALUES = {
    "invalid literal for int()": "an integer",
    "could not convert string to float": "a number",
    "neither a number nor none": "a number or none",
    "Non-boolean argument to boolean flag": "true or false",
}


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs a subcommand, and ends the process with its exit status.

    Args:
        arguments: the subcommand and its flags; default: those of `sys.argv`.
    """
    fill_closed_streams()
    print_any_text()
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name == "help" and rest:  # `help train` is `train --help`
        name, rest = rest[0], ["--help"]
    if name in (*_HELP, *_HELP_FULL, "help"):
        _print_and_exit(PROGRAM, _overview())
    if name in ("--version", "-version"):
        from keras_transformer import __version__

        _print_and_exit(PROGRAM, f"{PROGRAM} {__version__}\n")
    if name not in COMMANDS:
        others = _nearest(name, COMMANDS) or f"one of {', '.join(COMMANDS)}"
        message = f"unknown command {name!r}: use {others}; see {PROGRAM} --help"
        sys.exit(_fail(PROGRAM, message, 2))
    with ending_when_interrupted(f"{PROGRAM} {name}"):
        module = importlib.import_module(f"keras_transformer.cli.{name.replace('-', '_')}")
    module.define_flags()
    sys.argv = [PROGRAM, name, *rest]  # as a model_dir records it, however it was started
    run(module.COMMAND, f"{PROGRAM} {name}", rest)


def run(command: Command, program: str, arguments: Sequence[str]) -> NoReturn:
    """Runs a command with absl's flags; reports a user's mistake in one line, with exit status 2.

    Args:
        command: the command, whose flags are defined already.
        program: how it was typed, such as "keras-transformer train".
        arguments: the arguments typed after it.
    """

    def parse(argv):
        if asked := {*_HELP, *_HELP_FULL} & {*argv}:
            is_full = not asked.isdisjoint(_HELP_FULL)
            _print_and_exit(program, command_help(program, command.about or "", is_full))
        try:
            return command.parse([argv[0], *_with_flag_files(argv[1:])])
        except OSError as error:
            sys.exit(_fail(program, f"{error.filename}: {error.strerror}", 2))
        except (flags.Error, ValueError) as error:  # absl raises both
            sys.exit(_fail(program, _explained(error, program), 2))

    app.run(
        lambda argv: _run(command, program, argv[1:]),
        [program, *map(_with_home, arguments)],
        flags_parser=parse,
    )
    raise AssertionError("unreachable: absl ends the process")


def _with_flag_files(arguments):
    """Puts the flags of each --flagfile first, so that those of the command line replace them.

    A list that is given twice has the values of both, but not of a file and of the command line.

    Raises:
        OSError: a file may never end, such as /dev/zero.
        flags.Error: a file cannot be read.
    """
    of_files, typed = [], []
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if argument == "--":
            typed += [argument, *rest]
        elif name in ("-flagfile", "--flagfile"):
            directive = [argument] if equals else [argument, *itertools.islice(rest, 1)]
            path = os.path.expanduser(value if equals else directive[-1])
            if os.path.exists(path) and not Path(path).is_fifo():  # as `<(...)` is, which ends
                read_whole(path)
            of_files += flags.FLAGS.read_flags_from_files(directive)
        else:
            typed.append(argument)
    replaced = {_flag_name(argument) for argument in typed} & list_flags()
    kept, values = [], iter(of_files)
    for one in values:
        if _flag_name(one) not in replaced:
            kept.append(one)
        elif "=" not in one:
            next(values, None)  # its value, in the next line
    return kept + typed


def _flag_name(argument):
    return argument.partition("=")[0].lstrip("-") if argument.startswith("-") else None


def _with_home(argument):
    """Replaces the ~ of `--model_dir=~/a,~/b`, which shells leave as it is."""
    if not argument.startswith("-"):
        return argument
    return re.sub(r"(?<=[=,])~(?=/)", lambda _: os.path.expanduser("~"), argument)


def _run(command, program, others):
    with _errors_in_one_line(program):
        if others:
            raise UserError(f"{others[0]!r} is not a flag; see {program} --help")
        if command.needs_tensorflow():
            with ending_when_interrupted(program):
                command.before_tensorflow()
                quiet.import_tensorflow()
        with raising_when_terminated():
            command.main()


def _shortage(error):
    """The line of an error that says what had no room; of a graph's error, it is not the first."""
    lines = str(error).splitlines() or ["the system gives no more"]
    return next((line for line in lines if re.search("OOM|[Oo]ut of memory", line)), lines[0])


def _advice():
    """The flags of the command that make it need less memory."""
    if "num_microbatches" in flags.FLAGS:
        return " (a smaller --tokens_per_batch or a larger --num_microbatches needs less)"
    return " (a smaller --tokens_per_batch needs less)" if "tokens_per_batch" in flags.FLAGS else ""


def _print_and_exit(program: str, text: str) -> NoReturn:
    with _errors_in_one_line(program):
        print(text, end="")
    sys.exit()


@contextlib.contextmanager
def _errors_in_one_line(program: str) -> Iterator[None]:
    """Ends the process with one line if the block fails by a mistake of the user or the machine."""
    try:
        yield
        print(end="", flush=True)  # here, so that its errors are reported too
    except UserError as error:
        sys.exit(_fail(program, str(error), 2))
    except BrokenPipeError:  # the reader of our output has gone
        finish_output()
        sys.exit(1)
    except OSError as error:
        finish_output()
        where = error.filename or "input or output"
        sys.exit(_fail(program, f"{where}: {error.strerror or error}", 2))
    except Exception as error:
        if not _is_out_of_memory(error):
            raise
        sys.exit(_fail(program, f"not enough memory{_advice()}: {_shortage(error)}", 2))
    except KeyboardInterrupt:
        sys.exit(_fail(program, "interrupted", 130))
    except Terminated:
        sys.exit(_fail(program, "terminated", 143))


def _is_out_of_memory(error):
    tf = sys.modules.get("tensorflow")
    return isinstance(error, MemoryError) or (
        tf is not None and isinstance(error, tf.errors.ResourceExhaustedError)
    )


def _explained(error, program):
    """A one-line error message for flags that absl cannot read."""
    if isinstance(error, flags.UnrecognizedFlagError):
        nearest = _nearest(error.flagname, flags.FLAGS)
        hint = f"did you mean --{nearest}?" if nearest else f"see {program} --help"
        return f"unknown flag --{error.flagname}; {hint}"
    if isinstance(error, UnicodeDecodeError):
        return f"the file of --flagfile is {not_utf_8(error, error.object)}"
    if "must have a value other than None" in str(error):
        missing = str(error).partition("--")[2].partition("=")[0]
        return f"--{missing} is required; see {program} --help"
    for reason, needed in _WRONG_VALUES.items():
        if reason in str(error):
            flag = str(error).partition(reason)[0].rstrip(" :('")
            return f"{flag} must be {needed}"
    return str(error)


def _nearest(name: str, names: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, list(names), n=1)), None)


def _overview():
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:{width}}  {does}" for name, does in COMMANDS.items())
    return (
        f"usage: {PROGRAM} COMMAND [--flag=value ...]\n\n"
        'The Transformer of "Attention Is All You Need": train, evaluate and serve\n'
        f"sequence-to-sequence models.\n\n{commands}\n\n"
        f"{PROGRAM} COMMAND --help lists the flags of a command.\n"
        f"{PROGRAM} --version prints the version.\n"
    )


def _fail(program, message, status):
    print(f"{program}: {' '.join(plain_text(message).split())}", file=sys.stderr)
    return status
