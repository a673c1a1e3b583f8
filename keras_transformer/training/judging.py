"""Judges a model on pairs of sentences, during training and at the end."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from keras_transformer.ctranslate2.converted import ModelInMemory
from keras_transformer.ctranslate2.translator import CTranslate2Translator, check_search
from keras_transformer.data import Batches, SentencePairs
from keras_transformer.errors import Unsupported
from keras_transformer.evaluation import ReferenceLoss
from keras_transformer.machine.gpu import has_gpu
from keras_transformer.model import Transformer
from keras_transformer.options.search import SearchOptions
from keras_transformer.text import Tokenizer
from keras_transformer.training.model_dir import digest_of
from keras_transformer.training.tasks import task_of
from keras_transformer.translator import Translator

_VALIDATION_SENTENCES = 1000

# Validates the current model: returns figures by name, and samples of its outputs.
Judge = Callable[[], tuple[dict[str, float], list[dict[str, str]]]]


def judge_of(model, tokenizer, options, pairs, corpus, target_lang):
    """A function that validates the model: loss and perplexity, BLEU or F1 with greedy search."""
    # At most the tokens that a device computes at a time in training, for which it has memory.
    parts = options.num_microbatches * model.distribute_strategy.num_replicas_in_sync
    batches = Batches(corpus, max(1, options.tokens_per_batch // parts), shuffle=False)
    reference_loss = ReferenceLoss(model, batches.epoch())
    task = task_of(tokenizer, target_lang)
    search = {**task.search, "beam_size": 1}
    translate = translation_by(model, tokenizer, search, options.parallel_parts)
    sources, references = _sentences(pairs, _VALIDATION_SENTENCES)

    def judge():
        hypotheses = translate(sources)
        readable = (task.readable(sources, side) for side in (hypotheses, references))
        columns = ("source", "translation", "reference")
        rows = list(zip(sources, *readable, strict=True))
        samples = [dict(zip(columns, rows[row], strict=True)) for row in _sample_rows(sources)]
        figures = task.figures(sources, hypotheses, references)
        return {**reference_loss(), **figures}, samples

    return judge


def digest_of_scored(pairs: SentencePairs) -> str:
    """A digest of the text that validations score: only scores of the same text are comparable."""
    sources, references = _sentences(pairs, _VALIDATION_SENTENCES)
    return digest_of("\n".join([*sources, *references]).encode())


def translation_by(
    model: Transformer, tokenizer: Tokenizer, search: Mapping[str, Any], workers: int
) -> Callable[[Sequence[str]], list[str]]:
    """A function that translates with a model's current weights, as commands would (`engines.py`).

    Args:
        model: a built model.
        tokenizer: its vocabulary.
        search: fields of `SearchOptions`.
        workers: batches that TensorFlow computes in parallel; CTranslate2 uses all cores.
    """
    options = SearchOptions(**search)
    try:
        check_search(options)
        converted = ModelInMemory(model, tokenizer)
    except Unsupported:
        converted = None
    if converted is None or has_gpu():
        return Translator(model, tokenizer, options, workers=workers)
    return lambda sources: CTranslate2Translator(converted, options)(sources)


def report(model, tokenizer, pairs, target_lang, options, log):
    """Prints a model's scores on these pairs, with beam search, and some of its outputs."""
    task = task_of(tokenizer, target_lang)
    sources, references = _sentences(pairs)
    hypotheses = translation_by(model, tokenizer, task.search, options.parallel_parts)(sources)
    log.say(task.report(sources, hypotheses, references))
    hypotheses, references = (task.readable(sources, side) for side in (hypotheses, references))
    for row in _sample_rows(sources):
        log.say(
            f"\n  source       {sources[row]}"
            f"\n  translation  {hypotheses[row]}"
            f"\n  reference    {references[row]}"
        )


def _sample_rows(sentences):
    """Chooses evenly spread sentences to show, four or a few more."""
    return range(0, len(sentences), max(1, len(sentences) // 4))


def _sentences(
    pairs: SentencePairs, limit: int | None = None
) -> tuple[Sequence[str], Sequence[str]]:
    sources, references = zip(*itertools.islice(pairs, limit), strict=True)
    return sources, references
