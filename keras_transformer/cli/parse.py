"""Parses standard input, one sentence a line, to standard output, one tree a line.

  keras-transformer parse --model_dir=runs/parser < sentences.txt > trees.mrg

Separate words by spaces, as the Penn Treebank splits them: `They do n't .` Trees keep the words of
the sentence, except that brackets within words become -LRB- and -RRB-. A line without words gives
an empty line. The model predicts the tags of words; where it predicts none, the tag is `XX`. Lines
of more than 1,023 symbols are cut there, which one line on standard error says.
"""

import itertools

from absl import flags

from keras_transformer import parsing
from keras_transformer.cli import quiet
from keras_transformer.cli.command import Command
from keras_transformer.cli.flags import FLAGS, group
from keras_transformer.cli.translator_flags import (
    CutLines,
    define_model_flags,
    define_search_flags,
    load_translator,
    parser_defaults,
    refuse_n_best,
    share_cores_among_workers,
)
from keras_transformer.options.records import LARGEST
from keras_transformer.text.text_files import standard_streams, without_end


def define_flags() -> None:
    define_model_flags()
    with group("Input"):
        flags.DEFINE_integer(
            "lines_at_once",
            1024,
            "number of lines to parse together",
            lower_bound=1,
            upper_bound=LARGEST,
        )
    define_search_flags(parser_defaults())


def main():
    share_cores_among_workers()
    quiet.find_devices()
    read, write = standard_streams()
    refuse_n_best("parse writes the best tree of each sentence")
    parser = parsing.Parser(load_translator("parsing"))
    number = 0
    with CutLines(sentences="the input") as cut_lines:
        while lines := list(itertools.islice(read, FLAGS.lines_at_once)):
            # Bytes that are not UTF-8 are written as they were read.
            sentences = [without_end(line).decode("utf-8", "surrogateescape") for line in lines]
            cut_lines.numbers = range(number + 1, number + 1 + len(lines))
            for tree in parser(sentences):
                write.write(f"{tree}\n".encode("utf-8", "surrogateescape"))
            write.flush()
            number += len(lines)


COMMAND = Command(main, __doc__)
