"""Translates standard input to standard output, line for line.

  python translate.py --model_dir=runs/en-de < test.en > test.de
  python translate.py --model_dir=runs/en-de --n_best=4 < test.en
  python translate.py --model_dir=runs/en-de --score=test.de < test.en

With several translations a line, or with --scores, a line of output is
`number of the input line ||| translation ||| score`, the number from 0. A score is the
log-probability over the length penalty; --score prints that of given translations instead.
With --alignment there follows ` ||| 0-0 1-2`: indices of subwords, source-target.
"""

import itertools
import sys

from absl import flags

import quiet_tensorflow  # first: it silences what the others import
from keras_transformer.command_line import (
    define_translator_flags,
    given_fields,
    load_translator,
    run,
    share_cores_among_workers,
)
from keras_transformer.decoding import SearchOptions
from keras_transformer.errors import UserError
from keras_transformer.parsing import ParsingTokenizer
from keras_transformer.text_files import read_lines, without_end

define_translator_flags()
flags.DEFINE_bool("scores", False, "write the number of the line and the score too")
flags.DEFINE_string("score", None, "file of translations, line by line: write their scores")
flags.DEFINE_bool("alignment", False, "write which subwords come from which: source-target")
flags.DEFINE_string("prefix", None, "file of what each translation must start with, line by line")
flags.DEFINE_integer("lines_at_once", 1024, "lines translated together", lower_bound=1)
FLAGS = flags.FLAGS


def main():
    share_cores_among_workers()
    quiet_tensorflow.find_devices()
    if FLAGS.score is not None:
        of_search = {*given_fields(SearchOptions)} - {"alpha", "plain_length_penalty"}
        of_search |= {name for name in ("scores", "prefix", "alignment") if FLAGS[name].value}
        if of_search:
            raise UserError(f"--score excludes --{min(of_search)}: nothing is searched for")
    beside = FLAGS.score if FLAGS.prefix is None else FLAGS.prefix
    others = None if beside is None else read_lines(beside)
    translator = load_translator()
    if isinstance(translator.tokenizer, ParsingTokenizer):
        raise UserError(f"{FLAGS.model_dir[0]}: expected no parser: parse.py makes trees with it")
    number = 0
    while lines := list(itertools.islice(sys.stdin.buffer, FLAGS.lines_at_once)):
        lines = [without_end(line) for line in lines]
        given = None if others is None else list(itertools.islice(others, len(lines)))
        if given is not None and len(given) < len(lines):
            raise UserError(
                f"{beside}: expected a line for each line of input, found {number + len(given)}"
            )
        sys.stdout.buffer.writelines(
            f"{line}\n".encode() for line in output(translator, lines, given, number)
        )
        sys.stdout.buffer.flush()
        number += len(lines)
    if others is not None and next(others, None) is not None:
        raise UserError(f"{beside}: expected {number} lines, as there are of input, found more")


def output(translator, lines, given, number):
    """What is written for lines of input, of which the first is `number`."""
    if FLAGS.score is not None:
        yield from (f"{score:.6f}" for score in translator.score(lines, given))
        return
    with_scores = FLAGS.scores or translator.options.n_best > 1
    for line, translations in zip(lines, translator.translate_n(lines, given), strict=True):
        for text, score in translations if with_scores else translations[:1]:
            links = alignment(translator, line, text) if FLAGS.alignment else ""
            yield f"{number} ||| {text} ||| {score:.6f}{links}" if with_scores else text + links
        number += 1


def alignment(translator, line, text):
    [found] = translator.align([line], [text])
    return " ||| " + " ".join(f"{source}-{target}" for source, target in found.links)


if __name__ == "__main__":
    run(main)
