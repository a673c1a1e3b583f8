"""Parses standard input to standard output: a sentence a line in, a tree a line out.

  python parse.py --model_dir=runs/parser < sentences.txt > trees.mrg

Words are separated by spaces, as the Penn Treebank splits them: `They do n't .` Each is in its tree
as it is in the sentence, but brackets within words become -LRB- and -RRB-. A line without words
becomes an empty one. The tag of a word is the model's; `XX` stands for those that it does not tell.
"""

import itertools
import sys

from absl import flags

import quiet_tensorflow  # first: it silences what the others import
from keras_transformer.command_line import (
    define_translator_flags,
    load_translator,
    run,
    share_cores_among_workers,
)
from keras_transformer.parsing import Parser
from keras_transformer.text_files import without_end

define_translator_flags()
flags.DEFINE_integer("lines_at_once", 1024, "lines parsed together", lower_bound=1)
FLAGS = flags.FLAGS


def main():
    share_cores_among_workers()
    quiet_tensorflow.find_devices()
    parser = Parser(load_translator())
    while lines := list(itertools.islice(sys.stdin.buffer, FLAGS.lines_at_once)):
        # What is not UTF-8 comes out as it came in.
        sentences = [without_end(line).decode("utf-8", "surrogateescape") for line in lines]
        for tree in parser(sentences):
            sys.stdout.buffer.write(f"{tree}\n".encode("utf-8", "surrogateescape"))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    run(main)
