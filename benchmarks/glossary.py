"""Measures translation with terms that the references contain: BLEU, terms found, and time.

  python benchmarks/glossary.py --model_dir=runs/en-de --source=test.en --reference=test.de

Each line has no term, one or two, drawn from its reference: nouns in German (words with a capital
letter), or --kind=spans of one to three words. The first system knows no terms, the second does.
Both are timed in turns, by the CPU time of the process.
"""

import os
import random
import re

import sacrebleu
from absl import app, flags

import keras_transformer as kt
from keras_transformer.text.text_files import read_lines
from keras_transformer.text.words import split_words

FLAGS = flags.FLAGS


def drawn_terms(reference: str, kind: str, rng: random.Random) -> list[tuple[str]]:
    """Up to two terms of a reference, each with one form; spans do not touch each other."""
    number = rng.choice([0, 1, 1, 2])
    words = split_words(reference)
    if kind == "nouns":
        nouns = list(dict.fromkeys(w for w in words[1:] if w[0].isupper() and w.isalpha()))
        return [(noun,) for noun in rng.sample(nouns, min(number, len(nouns)))]
    terms, used = [], set()
    for length in rng.choices([1, 2, 3], k=number):
        spans = [range(i, i + length) for i in range(len(words) - length + 1)]
        texts = {span: " ".join(words[span.start : span.stop]) for span in spans}
        free = [
            span
            for span, text in texts.items()
            if not used & {*span} and text in reference and text.replace(" ", "").isalpha()
        ]
        if free:
            span = rng.choice(free)
            used |= {*range(span.start - 1, span.stop + 1)}
            terms.append((texts[span],))
    return terms


def is_met(translation: str, form: str) -> bool:
    """Whether a translation has a form as whole words, also with a capital letter."""
    forms = f"{re.escape(form)}|{re.escape(form[:1].upper() + form[1:])}"
    return re.search(rf"(?<!\w)(?:{forms})(?!\w)", translation) is not None


def timed(translate) -> tuple[list[str], float]:
    """The texts that a function translates, and its CPU seconds."""
    before = os.times()
    texts = [found.text for found in translate()]
    after = os.times()
    return texts, after.user + after.system - before.user - before.system


def main(_):
    source, reference = map(list, map(read_lines, (FLAGS.source, FLAGS.reference)))
    rng = random.Random(1)
    terms = [drawn_terms(line, FLAGS.kind, rng) for line in reference]
    translator = kt.load(FLAGS.model_dir, engine="tensorflow")
    systems = {
        "without": lambda: translator.translate(source),
        "with": lambda: translator.translate(source, terms=terms),
    }
    texts = {name: timed(system)[0] for name, system in systems.items()}
    print(f"{sum(map(len, terms)):,} terms in {sum(map(bool, terms)):,} of {len(terms):,} lines")
    for name, found in texts.items():
        met = sum(
            is_met(text, form) for text, own in zip(found, terms, strict=True) for [form] in own
        )
        bleu = []
        for have_terms in (True, False):
            rows = [row for row, own in enumerate(terms) if bool(own) == have_terms]
            references = [[reference[row] for row in rows]]
            bleu.append(sacrebleu.corpus_bleu([found[row] for row in rows], references).score)
        print(
            f"{name:8}{met:6,} met; BLEU of lines with terms {bleu[0]:.2f}, of others {bleu[1]:.2f}"
        )
    rows = [row for row, own in enumerate(terms) if own]
    sentences, own = [source[row] for row in rows], [terms[row] for row in rows]
    for _ in range(FLAGS.rounds):
        _, without = timed(lambda: translator.translate(sentences))
        _, with_terms = timed(lambda: translator.translate(sentences, terms=own))
        print(f"CPU time with terms / without: {with_terms / without:.2f}")


if __name__ == "__main__":
    flags.DEFINE_string("model_dir", None, "folder of a trained model", required=True)
    flags.DEFINE_string("source", None, "text to translate", required=True)
    flags.DEFINE_string("reference", None, "translations of --source", required=True)
    flags.DEFINE_enum("kind", "nouns", ["nouns", "spans"], "what the terms are")
    flags.DEFINE_integer("rounds", 3, "number of timings of each system")
    app.run(main)
