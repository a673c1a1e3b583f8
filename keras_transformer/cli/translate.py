r"""Translates standard input to standard output, or files to files, line for line.

  keras-transformer translate --model_dir=runs/en-de < test.en > test.de
  keras-transformer translate --model_dir=runs/en-de --input=test.en.gz --output=test.de.gz
  keras-transformer translate --model_dir=runs/en-de --n_best=4 < test.en
  keras-transformer translate --model_dir=runs/en-de --score=test.de < test.en
  keras-transformer translate --model_dir=runs/nllb --source_lang=eng_Latn \
      --target_lang=fra_Latn < test.en
  keras-transformer translate --model_dir=runs/en-de --format=html < page.html > page.de.html
  keras-transformer translate --model_dir=runs/en-de --format=markdown < a.md > a.de.md
  keras-transformer translate --model_dir=runs/en-de --format=html --line_by_line < messages.en
  keras-transformer translate --runner=DirectRunner --direct_num_workers=2 \
      --direct_running_mode=multi_processing --saved_model=export/en-de \
      --input='news-*.en.gz' --output=translated/news.de

With --n_best or --scores, each output line is `input line ||| translation ||| score`, where input
lines are numbered from 0. The score is the log-probability divided by the length penalty. --score
writes only the scores of the translations in a file. --alignment appends ` ||| 0-0 1-2` to each
line: pairs of word indices, source-target, in the Pharaoh format.

At a terminal, each line is answered when it has been typed, and Ctrl-D ends the input. From a pipe
that stays open, lines are answered within a second after the last one.

--split=sentences splits each line into sentences, translates all of them together, and writes them
with the white space, list markers and indentation that the line has.

--glossary names a file of terms and their translations; see docs/glossaries.md.
Placeholders such as %s, {name}, <0> and URLs are copied unchanged, each once, and so is what
--keep matches; --noplaceholders leaves them to the model. --format=html and --format=markdown
translate a whole document: tags and emphasis stand around the words that correspond, and paragraphs
are split into sentences (docs/markup.md). --line_by_line makes each line a document of its own.

Lines of more than 1,023 tokens are cut there; with learned positions, after max_positions - 1. One
line on standard error then names the first of them. Others name the lines whose translation
repeats a phrase that the input does not repeat, or lost tags or other markup of the input.

With --mbr, the score of a translation is its expected chrF.

With --runner, Apache Beam translates each file of --input to a file of --output. It uses a model
that `export --format=saved_model` has written (docs/beam.md).
"""

import dataclasses
import itertools
import sys
import warnings

from absl import flags

from keras_transformer import training
from keras_transformer.cli import cluster, lines, quiet
from keras_transformer.cli.command import Command
from keras_transformer.cli.flags import FLAGS, given_fields, group, present, refuse
from keras_transformer.cli.line_messages import CutLines, LostMarkup, RepeatedLines
from keras_transformer.cli.translator_flags import (
    check_engine,
    define_engine_flag,
    define_glossary_flag,
    define_language_flags,
    define_mbr_flag,
    define_model_flags,
    define_search_flags,
    load_translator,
    model_languages,
    read_glossary,
    refuse_n_best,
    say_engine,
    share_cores_among_workers,
    uses_ctranslate2,
    with_glossary,
    with_mbr,
)
from keras_transformer.documents.linked_texts import word_links
from keras_transformer.documents.paragraphs import Paragraphs
from keras_transformer.documents.placeholders import PlaceholderTranslator, PlaceholderWarning
from keras_transformer.errors import UserError, expect_named
from keras_transformer.options import SearchOptions
from keras_transformer.text.language_code import check_language_code, short_code
from keras_transformer.text.placeholders import placeholder_patterns
from keras_transformer.text.sentences import as_text
from keras_transformer.text.text_files import read_lines

# The flags that --format=html and --format=markdown refuse.
_FOR_LINES = ("scores", "score", "alignment", "subwords", "prefix")


def define_flags() -> None:
    define_model_flags(required=False)  # `--runner` needs none
    define_language_flags()
    with group("Input and output"):
        flags.DEFINE_bool("scores", False, "write the line number and the score of translations")
        flags.DEFINE_string(
            "score", None, "file of translations, line by line, to score instead of translating"
        )
        flags.DEFINE_bool(
            "alignment", False, "write the alignment of words, as pairs source-target"
        )
        flags.DEFINE_bool("subwords", False, "with --alignment: pairs of subwords")
        flags.DEFINE_string(
            "prefix",
            None,
            "file of prefixes, line by line, that the translations start with; blank lines stay "
            "blank",
        )
        flags.DEFINE_enum(
            "format",
            "text",
            ["text", "html", "markdown"],
            "text, which is translated line for line; or html or markdown, a document or a part of "
            "one",
        )
        flags.DEFINE_bool(
            "line_by_line",
            False,
            "with --format=html or markdown: each line is a document of its own, such as a message "
            "of a program",
        )
        flags.DEFINE_enum(
            "split",
            None,
            ["none", "sentences"],
            "what to split each line into, or each paragraph of HTML or Markdown: none, it is a "
            "sentence; or sentences, by the rules of the source language that `train` recorded, or "
            "else of English; default: none, for HTML and Markdown sentences",
        )
        flags.DEFINE_bool(
            "placeholders",
            None,
            "copy placeholders unchanged: %s, %1$s, {name}, {{ x }}, <0>, URLs, e-mail addresses "
            "and the like; default: yes, unless a quarter or more of the training pairs with "
            "placeholders or long numbers did not copy them",
        )
        flags.DEFINE_multi_string(
            "keep", [], "regular expression of further text to copy unchanged; may be repeated"
        )
        lines.define_flags(
            "; with --runner, files: a local or gs:// path, which may have wildcards",
            "; with --runner, prefix of the files to write: PREFIX-00000-of-00002 and so on",
        )
    define_search_flags()
    define_mbr_flag()
    define_glossary_flag()
    define_engine_flag()
    cluster.define_flags()


def main():
    if FLAGS.runner is not None:
        return cluster.main()
    cluster.refuse_flags_for_files()
    check_engine()
    if not uses_ctranslate2():
        share_cores_among_workers()
        quiet.find_devices()
    if not FLAGS.alignment:
        refuse(present(["subwords"]), "without --alignment")
    if FLAGS.placeholders is False:
        refuse(present(["keep"]), "with --noplaceholders")
    patterns = kept_patterns()
    glossary = read_glossary()
    if FLAGS.format != "text":
        return translate_markup(patterns, glossary)
    refuse(present(["line_by_line"]), "without --format=html or --format=markdown")
    if FLAGS.split == "sentences":
        beside = [name for name in ("score", "prefix", "alignment") if FLAGS[name].value]
        refuse(beside, "with --split=sentences, since it is for single sentences")
    if FLAGS.score is not None:
        of_search = {*given_fields(SearchOptions)} - {"alpha", "length_penalty"}
        flags_of_search = ("scores", "prefix", "alignment", "mbr", "glossary", "keep")
        of_search |= {name for name in flags_of_search if FLAGS[name].value}
        if (FLAGS.workers or 1) > 1 and not uses_ctranslate2():
            of_search.add("workers")
        if FLAGS.jit_compile and FLAGS.precision != "int8":  # int8 needs it
            of_search.add("jit_compile")
        refuse(sorted(of_search), "with --score, which does not search")
    for name in ("score", "prefix"):
        if FLAGS[name].value is not None:
            expect_named(name, FLAGS[name].value)
    beside = FLAGS.score if FLAGS.prefix is None else FLAGS.prefix
    others = None if beside is None else _opened(beside)
    say_engine("Translating" if FLAGS.score is None else "Scoring")
    names = {"sentences": "the input", "translations": FLAGS.score or "the output"}
    inputs = [path for path in (beside, FLAGS.glossary) if path is not None]
    with lines.lines_and_output(inputs, exact=FLAGS.split == "sentences") as (blocks, write):
        translator = loaded_translator(glossary)
        with (
            CutLines(**names) as cut_lines,
            RepeatedLines("the input") as repeated,
            LostMarkup() as lost,
        ):
            counters = (repeated, lost)
            translate(translator, blocks, write, others, cut_lines, counters)


def loaded_translator(glossary):
    """The translator that the flags name, with the terms of a glossary or by minimum Bayes risk."""
    check_languages()
    translator = load_translator("translation", with_languages=True)
    return with_mbr(with_glossary(translator, glossary, FLAGS.keep))


def check_languages():
    """Refuses languages that would be ignored, and a source language that is no code."""
    check_language_code(FLAGS.source_lang, "--source_lang")
    languages = model_languages()
    if languages is None:
        refuse(present(["target_lang"]), "with this model, which translates between two languages")
    is_split = FLAGS.split == "sentences" or (FLAGS.format != "text" and FLAGS.split is None)
    if not (is_split or (languages and languages.in_target)):
        refuse(
            present(["source_lang"]),
            "with this model, which does not read it, except to split text",
        )


def kept_patterns():
    """The patterns of what may be copied; raises `UserError` if one of --keep is wrong."""
    try:
        return placeholder_patterns(FLAGS.keep)
    except UserError as error:  # "keep='(' is ..."
        raise UserError(f"--{error}") from None


def translate_markup(patterns, glossary):
    """Translates HTML or Markdown: a whole document, or with `--line_by_line` one in each line."""
    refuse(present(_FOR_LINES), f"with --format={FLAGS.format}")
    if not FLAGS.line_by_line:
        refuse(
            present(["lines_at_once"]),
            f"with --format={FLAGS.format}, which reads a whole document, unless --line_by_line",
        )
    refuse_n_best(f"--format={FLAGS.format} writes one translation")
    say_engine("Translating")
    inputs = [] if glossary is None else [FLAGS.glossary]
    if FLAGS.line_by_line:
        opened, end = lines.lines_and_output(inputs, exact=True), b"\n"
    else:
        opened, end = lines.document_and_output(inputs), b""
    with opened as (blocks, write):
        translator = loaded_translator(glossary)
        if not copies_placeholders():
            patterns = []
        with CutLines(sentences="the input") as cut_lines, RepeatedLines("the input") as repeated:
            texts = translated_texts(translator, blocks, patterns, cut_lines, repeated)
            for some in texts:
                write.writelines(text + end for text in some)
                write.flush()


def translated_texts(translator, blocks, patterns, cut_lines, repeated):
    """Yields lists of texts with markup in another language, in UTF-8, for lists of texts."""
    # Only markup needs it, and a command for one line notices what it imports.
    from keras_transformer.documents.markup import (
        MarkupTexts,
        described,
        translate_marked,
        uncertain,
    )

    problems, number = [], 0
    for block in blocks:
        texts = [text.decode("utf-8", "surrogateescape") for text in block]
        read = MarkupTexts(texts, source_lang(), FLAGS.split != "none", patterns, FLAGS.format)
        for row, problem in enumerate(read.problems):
            if problem:
                problems.append(dataclasses.replace(problem, line=number + row + problem.line))
        rows = zip(read.rows, read.sentences, strict=True)
        numbers = cut_lines.numbers = [number + row + sentence.line for row, sentence in rows]
        found = translate_marked(translator, read.sentences, patterns)
        if rows := uncertain(found):
            warnings.warn(PlaceholderWarning(rows), stacklevel=2)
        sentences = [sentence.text for sentence in read.sentences]
        repeated.count(numbers, sentences, [best[0].kept.text for best in found])
        yield [best.text.encode("utf-8", "surrogateescape") for best, *_ in read.join(found)]
        number += len(block)
    if problems:
        total = sum(problem.count for problem in problems)
        problem = described(dataclasses.replace(problems[0], count=total))
        print(f"{FLAGS.input or 'standard input'}, {problem}", file=sys.stderr)


def translate(translator, blocks, write, others, cut_lines, counters):
    """Writes the output lines of all blocks; `others` are lines of --score or --prefix, or None."""
    beside, number = FLAGS.score or FLAGS.prefix, 0
    for sentences in blocks:
        given = None if others is None else list(itertools.islice(others, len(sentences)))
        if given is not None and len(given) < len(sentences):
            raise UserError(
                f"{beside} must have a line for each line of input: found {number + len(given)}"
            )
        results = output(translator, sentences, given, number, cut_lines, counters)
        write.writelines(f"{line}\n".encode() for line in results)
        write.flush()
        number += len(sentences)
    if any(line.strip() for line in others or ()):  # blank lines at the end do not count
        raise UserError(f"{beside} must have {number} lines, as many as the input: found more")


def _opened(path):
    """The lines of a file, of which the first is read now: a missing file is refused at once."""
    lines = read_lines(path)
    return itertools.chain(list(itertools.islice(lines, 1)), lines)


def output(translator, sentences, given, number, cut_lines, counters):
    """The output lines for input lines, the first of which has this number, from 0."""
    numbers = cut_lines.numbers = range(number + 1, number + 1 + len(sentences))
    if FLAGS.score is not None:
        yield from (f"{score:.6f}" for score in translator.score(sentences, given))
        return
    with_scores = FLAGS.scores or translator.options.n_best > 1
    found = _found(translator, sentences, given, number, cut_lines)
    for counter in counters:
        counter.count(numbers, sentences, [best[0].text for best in found])
    rows = [
        (index, translation.text, translation.score)
        for index, translations in enumerate(found)
        for translation in (translations if with_scores else translations[:1])
    ]
    links = [""] * len(rows)
    if FLAGS.alignment:
        cut_lines.numbers = [number + 1 + index for index, *_ in rows]
        sources, texts = [sentences[index] for index, *_ in rows], [text for _, text, _ in rows]
        found = translator.align(sources, texts)
        of_words = map(word_links, found, as_text(sources), texts)
        links = [*map(alignment, [one.links for one in found] if FLAGS.subwords else of_words)]
    for (index, text, score), aligned in zip(rows, links, strict=True):
        scored = f"{number + index} ||| {text} ||| {score:.6f}" if with_scores else text
        yield scored + aligned


def copies_placeholders():
    """Whether to copy placeholders: a flag says so, or all models learned from pairs that did."""
    if FLAGS.placeholders is not None or FLAGS.keep:
        return FLAGS.placeholders is not False
    records = (training.ModelDir(path).load_training() for path in FLAGS.model_dir)
    return all(record["copies_parts"] for record in records)


def _keeping(translator):
    if copies_placeholders():
        return PlaceholderTranslator(translator, FLAGS.keep)
    return translator


def _found(translator, sentences, given, number, cut_lines):
    """The translations of each line; with `--split=sentences`, of its sentences, joined."""
    keeping = _keeping(translator)
    if FLAGS.split != "sentences":
        return keeping.translate_n(sentences, given)
    paragraphs = Paragraphs(sentences, source_lang(), translator.count_tokens)
    cut_lines.numbers = [number + 1 + row for row in paragraphs.rows]
    return paragraphs.join(keeping.translate_n(paragraphs.sentences))


def source_lang():
    """The two-letter code of the source language, of the flag or the model_dir; or None."""
    recorded = training.ModelDir(FLAGS.model_dir[0]).load_training()["source_lang"]
    language = FLAGS.source_lang or recorded
    return language and short_code(language)


def alignment(links):
    return " ||| " + " ".join(f"{source}-{target}" for source, target in links)


COMMAND = Command(
    main,
    __doc__,
    parse=cluster.parse_flags,
    needs_tensorflow=lambda: FLAGS.runner is not None or not uses_ctranslate2(),
)
