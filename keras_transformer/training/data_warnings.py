"""Warnings about the data of a new run, which `train` prints before the run begins."""

from collections.abc import Iterator

import numpy as np

from keras_transformer.data import Corpus, TextPairs, WeightedPairs
from keras_transformer.data.copied_parts import share_copied
from keras_transformer.data.corpus_warning import corpus_warning
from keras_transformer.evaluation.bleu import language_warning, short_lines_warning
from keras_transformer.options.search import SearchOptions
from keras_transformer.training.job import TrainingJob

_MOST_OF_LETTERS = 400  # symbols of a vocabulary that has hardly more than letters
_FEW_TOKENS = 2.5  # of a source on average, without the end symbol
_MOST_LONGER = 0.01  # share of the targets beyond the limit of a search, without a warning
_MOST_COPY = 0.75  # share of the pairs that copy placeholders, from which on it is usual


def data_warnings(
    job: TrainingJob, corpus: Corpus, valid_corpus: Corpus | None, copied: float | None
) -> Iterator[str]:
    """Yields the warnings, each one line.

    Args:
        job: the job.
        corpus: its training set.
        valid_corpus: its validation set, or None.
        copied: the result of `share_of_copies`.
    """
    yield from filter(
        None,
        (
            _corpus_warning(job, corpus, valid_corpus),
            _bleu_warning(job),
            _vocabulary_warning(job, corpus),
            _length_warning(job, valid_corpus),
        ),
    )
    if copied is not None and not are_usual(copied):
        yield (
            f"{1 - copied:.0%} of the training pairs with placeholders or long numbers do not copy "
            "them, so `translate` does not either, unless --placeholders is given"
        )


def share_of_copies(job: TrainingJob, num_pairs: int) -> float | None:
    """The share of the pairs that copy their placeholders; None if nothing is known.

    It is of the text files whose pairs are in batches, whatever their weights.
    """
    weights = job.train.weights or [1.0]
    used = [pairs for pairs, weight in zip(_corpora_of(job), weights, strict=True) if weight]
    if not all(isinstance(pairs, TextPairs) for pairs in used):
        return None
    return share_copied(_as_one(used), num_pairs)


def are_usual(copied: float) -> bool:
    """Whether a share of copies is that of translations, from which on `translate` copies too."""
    return copied >= _MOST_COPY


def _corpora_of(job):
    return job.train.corpora if isinstance(job.train, WeightedPairs) else [job.train]


def _as_one(corpora):
    source, target = ([path for pairs in corpora for path in pairs.given[side]] for side in (0, 1))
    return TextPairs(source, target)


def _corpus_warning(job, corpus, valid_corpus):
    """One line if the text files to train on should be cleaned first."""
    corpora = _corpora_of(job)
    if not all(isinstance(pairs, TextPairs) for pairs in corpora):
        return None
    is_same = valid_corpus is not None and valid_corpus.fingerprint == corpus.fingerprint
    return corpus_warning(_as_one(corpora), None if is_same else job.valid)


def _bleu_warning(job):
    """One line if BLEU of a translator's validation is about 0, however good the translations."""
    if not job.valid or job.valid.task != "translation" or job.train.target_langs:
        return None
    about = [target for _, target in job.valid], job.target_lang, job.valid.description
    if warning := language_warning(*about):
        return warning
    if job.options.best_by == "score" and (warning := short_lines_warning(*about)):
        return f"{warning}; the loss decides which weights are best"
    return None


def _vocabulary_warning(job, corpus):
    """One line if a learned vocabulary has most sources as a subword or two."""
    counts = corpus.counts
    is_given = job.vocabulary or job.start_from or job.train.task != "translation"
    if is_given or job.config.vocab_size < _MOST_OF_LETTERS:
        return None
    if counts.source_tokens > _FEW_TOKENS * counts.kept:
        return None
    return (
        f"Warning: the vocabulary has the sources in {counts.source_tokens / counts.kept:.1f} "
        "subwords on average: if single letters or digits matter, as in pronunciations and sums, "
        "choose a smaller one by --vocab_size, such as 330"
    )


def _length_warning(job, valid_corpus):
    """One line if validation targets are longer than translations may be by default."""
    if not valid_corpus or job.valid.task != "translation":
        return None
    (_, source), (_, target) = valid_corpus.pairs.sides(np.arange(valid_corpus.pairs.size))
    extra, limit = target - source, SearchOptions().extra_length
    share = (extra > limit).mean()
    if share < _MOST_LONGER:
        return None
    return (
        f"Warning: {share:.0%} of the targets of {job.valid.description} have over {limit} tokens "
        "more than their sources, where the default search ends translations: give `translate` "
        f"and `evaluate` --extra_length={10 * -(-extra.max() // 10)}"
    )
