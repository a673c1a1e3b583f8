"""Makes an untrained parser that begins with word vectors of other text.

  python benchmarks/word_vectors.py --vectors=vectors.txt --train_source=train.mrg \\
      --output=runs/start

A line of `--vectors` is a word and its numbers, as in GloVe's files. `--output` gets the model of
the preset `parsing-small`. Its vocabulary has the words of the trees and of the vectors, whose
principal components are the embeddings. The output is the command that trains this model.
"""

import dataclasses
import json
import shlex
import sys

import keras
import numpy as np
from absl import flags

import keras_transformer as kt
from keras_transformer.cli.command import Command
from keras_transformer.cli.main import run
from keras_transformer.errors import UserError
from keras_transformer.parsing import ParsingOptions, ParsingTokenizer, TreebankPairs
from keras_transformer.text.text_files import read_lines

flags.DEFINE_string("vectors", None, "text file of words and their vectors", required=True)
flags.DEFINE_list("train_source", None, "treebank files to train on", required=True)
flags.DEFINE_string("output", None, "folder of the new model", required=True)
flags.DEFINE_integer("most_words", 25_000, "words to read from --vectors", 1)
flags.DEFINE_integer("seed", 1, "seed of the other weights")
FLAGS = flags.FLAGS

PRESET = "parsing-small"


def main():
    start = kt.ModelDir(FLAGS.output)
    start.check_new()
    vectors = read_vectors(FLAGS.vectors)
    config = kt.TransformerConfig.from_preset(PRESET)
    options = ParsingOptions(**(kt.PRESETS[PRESET].parsing or {}))
    pairs = TreebankPairs(FLAGS.train_source, options).pairs()
    learned = ParsingTokenizer.learn(
        pairs, config.vocab_size, options.linearization == "words", config.target_vocab_size
    )
    config = dataclasses.replace(config, vocab_size=config.vocab_size + len(vectors))
    tokenizer = with_words(learned, vectors, config.vocab_size)
    keras.utils.set_random_seed(FLAGS.seed)
    model = kt.Transformer(config)
    rows = principal_components(np.array([*vectors.values()]), config.d_model)
    begin_with(model, tokenizer, dict(zip(vectors, rows, strict=True)))
    start.create_trained(model, tokenizer, None, shlex.join(sys.argv))
    print(
        f"keras-transformer train --task=parsing --preset={PRESET} --start_from={start.path} "
        f"--vocab_size={config.vocab_size} --train_source={','.join(FLAGS.train_source)} "
        "--valid_source=dev.mrg --model_dir=runs/parser"
    )


def read_vectors(path):
    """The vectors of the first words of a file."""
    vectors = {}
    for number, line in zip(range(1, FLAGS.most_words + 1), read_lines(path), strict=False):
        try:
            word, *numbers = line.split()
            vectors[word] = np.array(numbers, "float32")
            is_vector = len(numbers) > 1 and len(numbers) == len(next(iter(vectors.values())))
        except ValueError:
            is_vector = False
        if not is_vector or not np.isfinite(vectors[word]).all():
            raise UserError(
                f"{path}:{number}: expected a word and at least two numbers, as many in each line"
            )
    if len(np.unique([*vectors.values()], axis=0)) < 2:
        raise UserError(f"{path}: expected words with different vectors, found none")
    return vectors


def with_words(tokenizer, words, vocab_size):
    """The vocabulary with these words, too; those that are new occur in no tree."""
    content = json.loads(tokenizer.to_bytes())
    content["words"] = {**dict.fromkeys([*content["words"], *words], 0), **content["words"]}
    return ParsingTokenizer(**{**content, "vocab_size": vocab_size})


def principal_components(vectors, width):
    """The vectors in `width` numbers, as large on average as those of a new embedding."""
    vectors = vectors - vectors.mean(axis=0)  # (words, numbers)
    _, directions = np.linalg.eigh(vectors.T @ vectors)  # the most important one comes last
    vectors = (vectors @ directions[:, ::-1])[:, :width]
    return np.pad(vectors * width**-0.5 / vectors.std(), [(0, 0), (0, width - vectors.shape[1])])


def begin_with(model, tokenizer, vectors):
    """Sets the embeddings of words that have a vector, as written or in lower case."""
    embeddings = model.source_embedding.embeddings.numpy()
    for row, word in enumerate(tokenizer.pieces):
        embeddings[row] = vectors.get(word, vectors.get(word.lower(), embeddings[row]))
    model.source_embedding.embeddings.assign(embeddings)


if __name__ == "__main__":
    run(Command(main, __doc__), "word_vectors.py", sys.argv[1:])
