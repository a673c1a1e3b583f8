r"""Evaluates a trained model on a test set: BLEU, chrF and perplexity, or a parser's F1.

  keras-transformer evaluate --model_dir=runs/en-de --source=test.en --reference=test.de \
      --target_lang=de
  keras-transformer evaluate --model_dir=runs/en-de --source=test.en --reference=test.de \
      --compare=runs/other
  keras-transformer evaluate --model_dir=runs/en-de --source=test.en --reference=a.de,b.de
  keras-transformer evaluate --task=parsing --model_dir=runs/parser --source=test.mrg

sacreBLEU computes BLEU, cased and lowercased, and gives its signature. To compare with the paper or
with the Multi30k literature, --bleu_on_tokens also computes BLEU on Moses tokens. A bootstrap over
the sentences gives 95% confidence intervals; with --compare, its p is the probability of such a
difference between equally good systems. The environment variable SACREBLEU_SEED sets its seed.
Parsers get the scores of EVALB with COLLINS.prm: labelled bracket recall, precision, F1 and exact
match. If lines are too long for the model, one line on standard error says which it cut, and where.
Another one names the lines whose translation repeats a phrase that the source does not repeat.
"""

import dataclasses
import itertools
import json
import math
import os
import sys

from absl import flags

from keras_transformer import data, evaluation, parsing, training
from keras_transformer.cli import quiet
from keras_transformer.cli.command import Command
from keras_transformer.cli.flags import FLAGS, TASKS, define_list, group, present, refuse
from keras_transformer.cli.line_messages import CutLines, RepeatedLines
from keras_transformer.cli.outputs import check_outputs, writing
from keras_transformer.cli.translator_flags import (
    check_engine,
    chosen_languages,
    define_engine_flag,
    define_glossary_flag,
    define_mbr_flag,
    define_model_flags,
    define_search_flags,
    load_translator,
    mbr_options,
    model_languages,
    parser_defaults,
    read_glossary,
    refuse_n_best,
    say_engine,
    share_cores_among_workers,
    uses_ctranslate2,
    with_glossary,
    with_mbr,
)
from keras_transformer.errors import UserError, expect_named
from keras_transformer.files import whole_file
from keras_transformer.options import ParsingOptions, SearchOptions
from keras_transformer.options.search import MBR_TEMPERATURE
from keras_transformer.text.text_files import read_lines

_OUTPUTS = ("output", "json")  # flags
MAX_LENGTH = 1024  # tokens of a side: attention over an endless line would not fit into memory


def define_flags() -> None:
    define_model_flags()
    with group("Data"):
        flags.DEFINE_string(
            "source",
            None,
            "text file to translate, one sentence a line; or a treebank file to parse; a pattern "
            "such as 'test-*.en' stands for its files, sorted by name",
            required=True,
        )
        define_list(
            "reference",
            None,
            "translations of --source, line by line; several files or patterns, separated by "
            "commas, are several references of each sentence; not for parsing",
        )
        flags.DEFINE_string(
            "compare",
            None,
            "folder of another trained model, which may have another vocabulary and takes the same "
            "flags; or file of translations of --source, line by line: prints both scores and p of "
            "their difference; not for parsing",
        )
        flags.DEFINE_enum("task", "translation", TASKS, "task that the model was trained for")
        flags.DEFINE_string(
            "target_lang",
            None,
            "code of the target language, by which BLEU splits text into tokens; default: as in "
            "training; of a model for several languages, the one to translate into",
        )
        flags.DEFINE_string(
            "source_lang", None, "code of the language to translate from, for M2M100 and NLLB"
        )
        flags.DEFINE_bool(
            "bleu_on_tokens",
            False,
            "also compute BLEU on Moses tokens: lowercased, as papers on Multi30k report it, and "
            "with compounds split, as in the paper",
        )
        flags.DEFINE_bool(
            "error_rates",
            False,
            "also compute the share of exact matches, and TER, the rate of word errors, both in "
            "lower case if the model is; TER takes seconds for a line of hundreds of words",
        )
        flags.DEFINE_string(
            "output", None, "file to write the translations or trees to, plain or .gz"
        )
        flags.DEFINE_string("json", None, "file to write all figures to")
    usual = SearchOptions()
    define_search_flags(
        {
            name: f"{getattr(usual, name)}; of parsers {own}"
            for name, own in parser_defaults().items()
        }
    )
    define_mbr_flag()
    define_glossary_flag()
    define_engine_flag()


def main():
    check_engine()
    share_cores_among_workers()
    quiet.find_devices()
    refuse_n_best("evaluate scores the best translation of each sentence")
    if FLAGS.task == "parsing":
        evaluate_parser()
    else:
        evaluate_translator()


def evaluate_translator():
    if not FLAGS.reference:
        raise UserError("--reference is required: the translation to compare with")
    expect_named("reference", all(FLAGS.reference))
    read = [data.TextPairs(FLAGS.source, reference) for reference in FLAGS.reference]
    compared = [FLAGS.compare] if FLAGS.compare else []
    glossary = read_glossary()
    inputs = [*read[0].source, *(path for pairs in read for path in pairs.target), *compared]
    inputs += [] if glossary is None else [FLAGS.glossary]
    check_outputs(inputs, _OUTPUTS, {"compare": compared})
    sentences, references = read_all(read)
    # One sentence has no interval: all samples are equal.
    has_interval = 1 < len(sentences) <= evaluation.MOST_REFERENCES
    resamples = FLAGS.compare is not None or has_interval
    if resamples:
        evaluation.check_bootstrap(len(sentences))
    say_engine("Translating")
    translator = load_translator("translation", with_languages=True)
    languages = chosen_languages(model_languages())
    if "source_lang" not in languages:
        refuse(present(["source_lang"]), "with this model, which does not read it")
    searching = with_mbr(with_glossary(translator, glossary))
    other = None if FLAGS.compare is None else compared_system(len(sentences), glossary)
    language = FLAGS.target_lang
    if language is None:
        language = training.ModelDir(FLAGS.model_dir[0]).load_training()["target_lang"]
    evaluation.check_language(language)
    about = [*itertools.chain.from_iterable(references)], language, ", ".join(FLAGS.reference)
    if warning := evaluation.language_warning(*about) or evaluation.short_lines_warning(*about):
        print(warning, file=sys.stderr)
    if FLAGS.bleu_on_tokens and not evaluation.has_moses_tokens(language):
        found = language or "none"
        raise UserError(
            f"--bleu_on_tokens needs a --target_lang that Moses knows, such as de: found {found}"
        )
    if "source_lang" in languages:
        print("No perplexity: it would count the language, with which each translation begins")
        corpus = None
    else:
        corpus = reference_corpus(translator)

    has_two = other is not None and not isinstance(other, list)
    names = ",".join(FLAGS.model_dir), FLAGS.compare
    ours, theirs = (f" by {name}" if has_two else "" for name in names)
    hypotheses = translations(searching, sentences, ours)
    write_output(hypotheses)
    scores = evaluation.translation_scores(hypotheses, references, language, FLAGS.bleu_on_tokens)
    if FLAGS.error_rates:
        lowercase = translator.tokenizer.lowercase
        scores |= evaluation.error_rates(hypotheses, references, language, lowercase)
    print(evaluation.format_scores(scores))
    figures = {name: dataclasses.asdict(score) for name, score in scores.items()}
    if corpus is not None and len(FLAGS.model_dir) == 1:  # an ensemble has no loss
        figures |= reference_perplexity(model_of(translator), corpus)
    if resamples:
        systems = [hypotheses]
        if other is not None:
            systems.append(translations(other, sentences, theirs) if has_two else other)
        figures |= bootstrap(systems, references, language)
    write_json(translator, figures)


def read_all(read):
    """The sentences of the source, and a list of their translations for each reference."""
    rows = [list(pairs) for pairs in read]
    for reference, pairs in zip(FLAGS.reference, rows, strict=True):
        if len(pairs) != len(rows[0]):  # blank lines at the end count if the source has them too
            raise UserError(
                f"references must have equal numbers of lines: found {len(rows[0])} in "
                f"{FLAGS.reference[0]} and {len(pairs)} in {reference}"
            )
    if not rows[0]:
        raise UserError(f"{FLAGS.source} has no sentences to translate")
    sentences = [source for source, _ in rows[0]]
    return sentences, [[target for _, target in pairs] for pairs in rows]


def compared_system(num_sentences, glossary):
    """The translator of the model_dir that --compare names, or the lines of the file."""
    path = FLAGS.compare
    expect_named("compare", path)
    if os.path.isdir(path):
        translator = load_translator("translation", [path], with_languages=True)
        return with_mbr(with_glossary(translator, glossary))
    lines = list(read_lines(path))
    if len(lines) < num_sentences or any(line.strip() for line in lines[num_sentences:]):
        raise UserError(
            f"--compare={path} must have one line for each of the {num_sentences:,} sentences of "
            f"{FLAGS.source}: found {len(lines):,}"
        )
    return lines[:num_sentences]


def translations(translator, sentences, by):
    """Translates the sentences; messages on them end with `by`, the name of one of two models."""
    with CutLines(sentences=FLAGS.source + by) as cut_lines:
        cut_lines.numbers = range(1, len(sentences) + 1)
        found = translator(sentences)
    with RepeatedLines(FLAGS.source + by) as repeated:
        repeated.count(range(1, len(sentences) + 1), sentences, found)
    return found


def bootstrap(systems, references, language):
    """Computes and prints the confidence intervals of one system, or compares two."""
    ours, *others = evaluation.bootstrap_scores(systems, references, language)
    figures = {"intervals": {name: dataclasses.asdict(each) for name, each in ours.items()}}
    if not others:
        print(evaluation.format_margins(ours))
        return figures
    [theirs] = others
    names = ",".join(FLAGS.model_dir), FLAGS.compare
    print(f"\n{evaluation.format_comparison(names, ours, theirs)}")
    compared = {name: dataclasses.asdict(each) for name, each in theirs.items()}
    return {**figures, "compared": {"with": FLAGS.compare, **compared}}


def evaluate_parser():
    asked = [
        name
        for name in ("reference", "source_lang", "target_lang", "compare", "mbr", "glossary")
        if FLAGS[name].value is not None
    ]
    asked += [name for name in ("bleu_on_tokens", "error_rates") if FLAGS[name].value]
    refuse(asked + ["engine=ctranslate2"] * (FLAGS.engine == "ctranslate2"), "with --task=parsing")
    treebank = parsing.TreebankPairs(FLAGS.source, ParsingOptions())
    check_outputs(treebank.files, _OUTPUTS)
    references = treebank.trees
    if not references:
        raise UserError(f"{FLAGS.source} has no trees")
    parser = parsing.Parser(load_translator("parsing"))
    say_engine("Parsing")
    with CutLines(sentences=FLAGS.source) as cut_lines:
        cut_lines.numbers = range(1, len(references) + 1)
        parsed = parser.parse([" ".join(parsing.words(tree)) for tree in references])
    write_output(map(parsing.format_tree, parsed))
    print(parsing.format_bracket_scores(parsed, references))
    write_json(parser.translator, parsing.score_trees(parsed, references).figures())


def write_output(lines):
    """Writes translations or trees to `--output`, before scoring, which may fail."""
    if FLAGS.output:
        with writing({"output": FLAGS.output}) as files:
            files["output"].writelines(f"{line}\n".encode() for line in lines)


def write_json(translator, figures):
    """Writes all figures, and the options they were computed with, to `--json`."""
    if FLAGS.json:
        how = {
            name: FLAGS[name].value
            for name in ("model_dir", "average", "weights", "precision", "glossary")
        }
        how["engine"] = "ctranslate2" if uses_ctranslate2() else "tensorflow"
        model_dirs = [training.ModelDir(path) for path in FLAGS.model_dir]
        names = [m.resolved_weights(FLAGS.weights, FLAGS.average) for m in model_dirs]
        how["weights"] = ",".join(names)
        if names[0] == "mean":
            how["average"] = model_dirs[0].number_averaged(FLAGS.average)
        options = dataclasses.asdict(translator.options)
        del options["constraint"]  # a function, which no flag gives
        if chosen := mbr_options():
            options |= {"mbr": chosen.pop("samples"), "temperature": MBR_TEMPERATURE, **chosen}
        record = {**figures, **how, **options}
        # JSON has no infinity and no NaN, the loss of a model that diverged.
        for name, value in record.items():
            if isinstance(value, float) and not math.isfinite(value):
                record[name] = None
        with whole_file(FLAGS.json) as partial:
            partial.write_text(json.dumps(record, indent=2, allow_nan=False) + "\n")


def reference_corpus(translator):
    """The pairs whose perplexity can be computed, of all references, as token ids."""
    pairs = data.TextPairs([FLAGS.source] * len(FLAGS.reference), FLAGS.reference)
    corpus = data.Corpus.build(pairs, translator.tokenizer, MAX_LENGTH)
    if not corpus.counts.kept:
        raise UserError(
            f"{', '.join(FLAGS.reference)} cannot be scored: each line, or its line of "
            f"{FLAGS.source}, is empty or longer than {MAX_LENGTH} tokens"
        )
    return corpus


def model_of(translator):
    """The model whose perplexity is reported: for CTranslate2 its Keras original, in float32."""
    if uses_ctranslate2():
        return training.ModelDir(FLAGS.model_dir[0]).load_model(FLAGS.average, FLAGS.weights)
    return translator.models[0]


def reference_perplexity(model, corpus):
    """Computes the loss and perplexity of all references, and prints the perplexity."""
    batches = data.Batches(corpus, FLAGS.tokens_per_batch, shuffle=False).epoch()
    reference = evaluation.ReferenceLoss(model, batches)()
    what = "reference" if len(FLAGS.reference) == 1 else "references"
    print(f"{reference['perplexity']:6.2f}  perplexity of the {what}, per subword token")
    if left_out := corpus.counts.empty + corpus.counts.too_long:
        print(
            f"        (without pairs that are empty or longer than {MAX_LENGTH} tokens: {left_out})"
        )
    return reference


COMMAND = Command(main, __doc__)
