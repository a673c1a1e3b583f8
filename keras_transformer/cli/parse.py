"""Parses standard input, one sentence a line, to standard output, one tree a line.

  keras-transformer parse --model_dir=runs/parser < sentences.txt > trees.mrg
  keras-transformer parse --model_dir=runs/parser --input=sentences.txt.gz --output=trees.mrg

Separate words by spaces, as the Penn Treebank splits them: `They do n't .` Trees keep the words of
the sentence, except that brackets within words become -LRB- and -RRB-. A line without words gives
an empty line. The model predicts the tags of words; where it predicts none, the tag is `XX`. Lines
of more than 1,023 symbols are cut there, which one line on standard error says.
"""

from keras_transformer import parsing
from keras_transformer.cli import lines, quiet
from keras_transformer.cli.command import Command
from keras_transformer.cli.flags import group
from keras_transformer.cli.line_messages import CutLines
from keras_transformer.cli.translator_flags import (
    define_model_flags,
    define_search_flags,
    load_translator,
    parser_defaults,
    refuse_n_best,
    share_cores_among_workers,
)


def define_flags() -> None:
    define_model_flags()
    with group("Input and output"):
        lines.define_flags()
    define_search_flags(parser_defaults())


def main():
    share_cores_among_workers()
    quiet.find_devices()
    refuse_n_best("parse writes the best tree of each sentence")
    with lines.lines_and_output() as (blocks, write):
        parser = parsing.Parser(load_translator("parsing"))
        number = 0
        with CutLines(sentences="the input") as cut_lines:
            for block in blocks:
                cut_lines.numbers = range(number + 1, number + 1 + len(block))
                for tree in parser(block):
                    # Bytes that are not UTF-8 are written as they were read.
                    write.write(f"{tree}\n".encode("utf-8", "surrogateescape"))
                write.flush()
                number += len(block)


COMMAND = Command(main, __doc__)
