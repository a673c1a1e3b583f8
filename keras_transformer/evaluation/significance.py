"""Confidence intervals of scores, and whether two systems differ, by bootstrap resampling.

sacreBLEU draws the samples and computes the scores, as its command `sacrebleu --paired-bs` does.
"""

import contextlib
import dataclasses
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sacrebleu.significance import PairedTest

from keras_transformer.errors import UserError
from keras_transformer.evaluation.bleu import LABELS, plain_metrics, reference_lists
from keras_transformer.text.sentences import as_text, one_for_each

NUM_SAMPLES = 1000  # sacreBLEU's default
MOST_REFERENCES = 20_000
"""The largest test set; sacreBLEU holds all samples in memory, 1.4 GB for chrF at this size."""


@dataclasses.dataclass(frozen=True)
class Estimate:
    """The score of a system, with its 95% confidence interval.

    Attributes:
        label: name of the score.
        value: the score, from 0 to 100.
        mean: mean of the scores of the samples.
        margin: half the width of the interval, which is `mean` ± `margin`.
        p_value: probability of a difference from the first system at least as large as that found,
            if both were equally good; None for the first system.
        signature: sacreBLEU's signature, with the number of samples and their seed.
    """

    label: str
    value: float
    mean: float
    margin: float
    p_value: float | None
    signature: str


def bootstrap_scores(
    systems: Sequence[Sequence[str]],
    references: Sequence[str] | Sequence[Sequence[str]],
    target_lang: str | None = None,
) -> list[dict[str, Estimate]]:
    """Estimates how far scores depend on the choice of the test sentences (Koehn, 2004).

    The environment variable SACREBLEU_SEED sets the seed of the samples, which is 12345 by default.

    Args:
        systems: the translations of each system, as plain text; the others are compared with the
            first.
        references: the reference translations, in the same order, at most `MOST_REFERENCES`; for
            several of each sentence a list of such lists.
        target_lang: two-letter code of the target language, such as `"de"`.

    Returns:
        The estimates of each system: `bleu`, `bleu_lowercased` and `chrf`.

    Raises:
        UserError: the counts differ, there are too many lines, or SACREBLEU_SEED is not a seed.

    Example:
        >>> references = ["Ein Mann reitet.", "Zwei Hunde laufen.", "Sie schläft im Haus."]
        >>> [ours, theirs] = bootstrap_scores([references, ["Ein Hund."] * 3], references, "de")
        >>> ours["chrf"].value, theirs["chrf"].p_value < 0.05
        (100.0, True)
    """
    lists = reference_lists(references)
    check_bootstrap(len(lists[0]))
    texts = [as_text(one_for_each(lists[0], lines, "hypotheses")) for lines in systems]
    named: list[tuple[str, Sequence[str]]] = [
        (str(number), text) for number, text in enumerate(texts)
    ]
    found: list[dict[str, Estimate]] = [{} for _ in systems]
    with _without_progress():
        for name, metric in plain_metrics(target_lang).items():
            # One test for each, since sacreBLEU names both kinds of BLEU alike.
            test: Any = PairedTest(named, {name: metric}, lists, "bs", NUM_SAMPLES)
            signatures, scores = test()
            [[key, signature]] = signatures.items()
            for estimates, result in zip(found, scores[key], strict=True):
                # A difference of 0 or more is certain, but sacreBLEU's p of equal systems is 0.001.
                is_equal = result.p_value is not None and result.score == scores[key][0].score
                estimates[name] = Estimate(
                    label=LABELS[name],
                    value=float(result.score),
                    mean=float(result.mean),
                    margin=float(result.ci),
                    p_value=1.0 if is_equal else result.p_value,
                    signature=str(signature),
                )
    return found


def check_bootstrap(num_references: int) -> None:
    """Raises `UserError` for more than `MOST_REFERENCES`, or if SACREBLEU_SEED is not a seed."""
    if num_references > MOST_REFERENCES:
        raise UserError(
            f"the bootstrap takes at most {MOST_REFERENCES:,} references: found {num_references:,}"
        )
    seed = os.environ.get("SACREBLEU_SEED", "12345")
    if seed.lower() != "none" and not seed.isdecimal():
        raise UserError(f"SACREBLEU_SEED must be an integer of at least 0, or none: found {seed!r}")


def format_margins(estimates: Mapping[str, Estimate]) -> str:
    """Formats the confidence intervals of one system's scores as one line.

    Example:
        >>> print(format_margins({"chrf": Estimate("chrF", 61.5, 61.4, 0.9, None, "bs:1000")}))
                95% confidence (bootstrap): chrF ± 0.90
    """
    margins = "; ".join(f"{each.label} ± {each.margin:.2f}" for each in estimates.values())
    return f"        95% confidence (bootstrap): {margins}"


def format_comparison(
    names: tuple[str, str], ours: Mapping[str, Estimate], theirs: Mapping[str, Estimate]
) -> str:
    """Formats the scores of two systems as a table, with a column for each score.

    Args:
        names: the names of both systems.
        ours: the estimates of the first system.
        theirs: the estimates of the second system, which has p-values.

    Example:
        >>> ours = {"chrf": Estimate("chrF", 61.5, 61.4, 0.9, None, "bs:1000")}
        >>> theirs = {"chrf": Estimate("chrF", 60.0, 60.1, 0.8, 0.003, "bs:1000")}
        >>> print(format_comparison(("a", "b"), ours, theirs))
                chrF
        61.50 ± 0.90  a
        60.00 ± 0.80  b
               +1.50  difference
              0.0030  p of the paired bootstrap
    """
    pairs = [(ours[name], theirs[name]) for name in ours]
    rows = [
        ([ours.label for ours, _ in pairs], ""),
        ([_with_margin(ours) for ours, _ in pairs], names[0]),
        ([_with_margin(theirs) for _, theirs in pairs], names[1]),
        ([f"{ours.value - theirs.value:+.2f}" for ours, theirs in pairs], "difference"),
        ([f"{theirs.p_value:.4f}" for _, theirs in pairs], "p of the paired bootstrap"),
    ]
    widths = [max(map(len, column)) for column in zip(*(cells for cells, _ in rows), strict=True)]
    return "\n".join(
        "  ".join([*(f"{c:>{w}}" for c, w in zip(cells, widths, strict=True)), last]).rstrip()
        for cells, last in rows
    )


@contextlib.contextmanager
def _without_progress() -> Iterator[None]:
    """Silences what sacreBLEU says on its progress, but not its warnings."""
    logger = logging.getLogger("sacrebleu")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def _with_margin(estimate: Estimate) -> str:
    return f"{estimate.value:.2f} ± {estimate.margin:.2f}"
