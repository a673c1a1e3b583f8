"""How many outputs are right, and how many words are wrong: for tasks with one right answer."""

from collections.abc import Iterable, Sequence

from sacrebleu.metrics import TER

from keras_transformer.evaluation.bleu import Score, checked_texts
from keras_transformer.text.language_code import short_code

_WITH_CHARACTERS = ("ja", "zh")  # languages whose characters sacreBLEU's TER counts as words


def error_rates(
    hypotheses: Iterable[str],
    references: Iterable[str] | Sequence[Sequence[str]],
    target_lang: str | None = None,
    lowercase: bool = False,
) -> dict[str, Score]:
    """The share of exact matches, and the rate of word errors.

    Args:
        hypotheses: the outputs.
        references: the right ones, as for `translation_scores`.
        target_lang: code of their language; of Chinese and Japanese, characters count as words.
        lowercase: whether both are compared in lower case.

    Returns:
        A dictionary with `exact_match`, the outputs that have the words of a reference, in percent;
        and `ter`, sacreBLEU's Translation Edit Rate: the words to insert, delete, replace or move
        for each hundred words of the references. Lower is better, and it may be above 100. It takes
        seconds for lines of hundreds of words.

    Raises:
        UserError: as for `translation_scores`.

    Example:
        >>> rates = error_rates(["HH AH0 L OW1", "K AE1 D"], ["HH AH0 L OW1", "K AE1 T"])
        >>> rates["exact_match"].value, round(rates["ter"].value, 1)
        (50.0, 14.3)
    """
    outputs, lists = checked_texts(hypotheses, references)
    if lowercase:
        outputs, *lists = ([text.lower() for text in side] for side in (outputs, *lists))
    exact = sum(
        output.split() in [one.split() for one in right]
        for output, *right in zip(outputs, *lists, strict=True)
    )
    has_characters = short_code(target_lang or "") in _WITH_CHARACTERS
    metric = TER(
        normalized=has_characters, asian_support=has_characters, case_sensitive=not lowercase
    )
    value = metric.corpus_score(outputs, lists).score
    signature = f"nrefs:{len(lists)}|case:{'lc' if lowercase else 'mixed'}"
    return {
        "exact_match": Score("exact match", 100 * exact / len(outputs), signature),
        "ter": Score("TER", value, str(metric.get_signature())),
    }
