"""Judges a trained model: BLEU, chrF and perplexity of a test set, from its model_dir alone; or
F1 of a parser.

  python evaluate.py --model_dir=runs/en-de --source=test.en --reference=test.de --target_lang=de
  python evaluate.py --task=parsing --model_dir=runs/parser --source=test.mrg

BLEU is sacreBLEU's, cased and lowercased, with its signature; with a target language also on
Moses tokens, as the paper and the Multi30k literature report it. Of a parser, labelled bracket
recall, precision, F1 and exact match are EVALB's with COLLINS.prm.
"""

import dataclasses
import json
import os

from absl import flags

import quiet_tensorflow  # first: it silences what the others import
from keras_transformer.command_line import (
    define_translator_flags,
    load_translator,
    run,
    share_cores_among_workers,
)
from keras_transformer.data import Batches, Corpus, TextPairs
from keras_transformer.errors import UserError
from keras_transformer.evaluation import ReferenceLoss, format_scores, translation_scores
from keras_transformer.evaluation.brackets import format_bracket_scores, score_trees
from keras_transformer.files import whole_file
from keras_transformer.parsing import (
    Parser,
    ParsingTokenizer,
    format_tree,
    normalized_trees,
    words,
)
from keras_transformer.text_files import read_lines
from keras_transformer.training import ModelDir

define_translator_flags()
flags.DEFINE_enum(
    "task", "translation", ["translation", "parsing"], "what the model has learnt to do"
)
flags.DEFINE_string(
    "source", None, "text file to translate, a sentence a line; or a treebank file", required=True
)
flags.DEFINE_string("reference", None, "its translation, line by line; none of a treebank file")
flags.DEFINE_string("output", None, "file to write the model's translations, or trees, to")
flags.DEFINE_string("json", None, "file to write all figures to")
flags.DEFINE_string("target_lang", None, "two-letter code, for BLEU on tokens; default: training's")
FLAGS = flags.FLAGS

MAX_LENGTH = 1024  # of a side, in tokens: attention over a line without end would not fit


def main():
    share_cores_among_workers()
    quiet_tensorflow.find_devices()
    if FLAGS.task == "parsing":
        evaluate_parser()
    else:
        evaluate_translator()


def evaluate_translator():
    if FLAGS.reference is None:
        raise UserError("expected --reference, the translation to compare with, found none")
    pairs = TextPairs(FLAGS.source, FLAGS.reference)
    check_outputs()
    if not pairs.check():
        raise UserError(f"{FLAGS.source}: expected sentences to translate, found none")
    references = list(read_lines(FLAGS.reference))
    translator = load_translator()
    if isinstance(translator.tokenizer, ParsingTokenizer):
        raise UserError(f"{FLAGS.model_dir[0]}: expected no parser without --task=parsing")

    hypotheses = translator(list(read_lines(FLAGS.source)))
    language = FLAGS.target_lang or ModelDir(FLAGS.model_dir[0]).load_training()["target_lang"]
    scores = translation_scores(hypotheses, references, language)
    print(format_scores(scores))
    if "bleu_paper" not in scores:
        print("        (BLEU on tokens needs --target_lang, of a language that Moses knows)")
    reference = reference_perplexity(translator, pairs)
    figures = {name: dataclasses.asdict(score) for name, score in scores.items()}
    write_outputs(translator, hypotheses, {**figures, **reference})


def evaluate_parser():
    for name in ("reference", "target_lang"):
        if FLAGS[name].value is not None:
            raise UserError(f"expected no --{name}, found with --task=parsing")
    check_outputs()
    references = list(normalized_trees(FLAGS.source))
    if not references:
        raise UserError(f"{FLAGS.source}: expected trees, found none")
    parser = Parser(load_translator())
    parsed = parser.parse([" ".join(words(tree)) for tree in references])
    print(format_bracket_scores(parsed, references))
    figures = score_trees(parsed, references).figures()
    write_outputs(parser.translator, map(format_tree, parsed), figures)


def write_outputs(translator, lines, figures):
    """Writes what the model said, and the figures with how they were got, where that is wanted."""
    if FLAGS.output:
        with whole_file(FLAGS.output) as partial:
            partial.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    if FLAGS.json:
        how = {name: FLAGS[name].value for name in ("model_dir", "average", "weights", "precision")}
        if FLAGS.weights == "mean":
            how["average"] = ModelDir(FLAGS.model_dir[0]).number_averaged(FLAGS.average)
        search = {**how, **dataclasses.asdict(translator.options)}
        with whole_file(FLAGS.json) as partial:
            partial.write_text(json.dumps({**figures, **search}, indent=2) + "\n")


def reference_perplexity(translator, pairs):
    """Loss and perplexity of the references, printed; none of an ensemble, which has no loss."""
    if len(translator.models) > 1:
        return {}
    tokenizer = translator.tokenizer
    corpus = Corpus.build(pairs, tokenizer, MAX_LENGTH)
    batches = Batches(corpus, shuffle=False).epochs()
    reference = ReferenceLoss(translator.models[0], batches)()
    print(f"{reference['perplexity']:6.2f}  perplexity of the reference, per subword token")
    if left_out := corpus.counts.empty + corpus.counts.too_long:
        print(
            f"        (without {left_out} pairs that are empty or longer than {MAX_LENGTH} tokens)"
        )
    return reference


def check_outputs():
    """Refuses, before the work, outputs that cannot be written or would replace what is read."""
    taken = {os.path.realpath(path) for path in (FLAGS.source, FLAGS.reference) if path}
    for path in filter(None, (FLAGS.output, FLAGS.json)):
        if not os.path.isdir(os.path.dirname(path) or "."):
            raise UserError(f"{path}: expected a folder to write it to, found none")
        if os.path.realpath(path) in taken:
            raise UserError(f"{path}: expected a file of its own to write to, found one in use")
        taken.add(os.path.realpath(path))


if __name__ == "__main__":
    run(main)
