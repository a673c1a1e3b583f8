"""Share of lines whose placeholders are all right in the translation, with and without protection.

  python benchmarks/placeholders.py --model_dir=runs/en-de --source=test.en --reference=test.de

It translates the lines that have placeholders, such as `%s`, `{name}` or a URL, as `translate` does
with `--noplaceholders` and by default. A line is right if it has the placeholders of its source,
each as often, and those that a program fills in order (`%s`) in their order.
"""

import argparse
import collections
import warnings

from keras_transformer.documents.placeholders import PlaceholderTranslator, PlaceholderWarning
from keras_transformer.engines import load
from keras_transformer.evaluation.bleu import translation_scores
from keras_transformer.text.placeholders import (
    filled_in_order,
    find_placeholders,
    placeholder_patterns,
)
from keras_transformer.text.text_files import read_lines

PATTERNS = placeholder_patterns()


def placeholders(text: str) -> list[str]:
    """The placeholders of a line, in order."""
    return [text[start:end] for start, end in find_placeholders(text, PATTERNS)]


def is_right(source: str, translation: str) -> bool:
    """Whether a translation has the placeholders of its source."""
    ours, theirs = placeholders(source), placeholders(translation)
    return collections.Counter(ours) == collections.Counter(theirs) and filled_in_order(
        ours
    ) == filled_in_order(theirs)


def report(name: str, sources: list[str], translations: list[str], references: list[str]) -> None:
    """Prints the share of right lines, BLEU and chrF of translations."""
    right = sum(map(is_right, sources, translations))
    scores = translation_scores(translations, references, on_tokens=False)
    print(
        f"{name}: {right:,} of {len(sources):,} lines right ({right / len(sources):.2%}), "
        f"BLEU {scores['bleu'].value:.2f}, chrF {scores['chrf'].value:.2f}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in ("model_dir", "source", "reference"):
        parser.add_argument(f"--{name}", required=True)
    args = parser.parse_args()
    pairs = zip(read_lines(args.source), read_lines(args.reference), strict=True)
    with_some = [pair for pair in pairs if placeholders(pair[0])]
    sources, references = map(list, zip(*with_some, strict=True))
    translator = load(args.model_dir)
    report("reference", sources, references, references)
    report("--noplaceholders", sources, translator(sources), references)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PlaceholderWarning)
        report("default", sources, PlaceholderTranslator(translator)(sources), references)
    messages = [one.message for one in caught if isinstance(one.message, PlaceholderWarning)]
    reported = sum(len(message.indices) for message in messages)
    print(f"lines reported to be checked: {reported:,}")


if __name__ == "__main__":
    main()
