"""Judges a model on pairs of sentences, during training and at the end."""

import statistics
from collections.abc import Callable, Mapping
from typing import Any

from keras_transformer.ctranslate2.converted import ModelInMemory
from keras_transformer.ctranslate2.translator import CTranslate2Translator, check_search
from keras_transformer.data import Batches, SentencePairs
from keras_transformer.errors import Unsupported
from keras_transformer.evaluation import ReferenceLoss
from keras_transformer.machine.gpu import tensorflow_has_gpu
from keras_transformer.model import Transformer
from keras_transformer.options.search import SearchOptions
from keras_transformer.text import Tokenizer
from keras_transformer.training.model_dir import digest_of
from keras_transformer.training.tasks import task_of
from keras_transformer.translator import Translator

_VALIDATION_SENTENCES = 1000
_WORSE = 1.0  # points by which beam search may be worse than greedy search without a warning

# Validates the current model: returns figures by name, and samples of its outputs.
Judge = Callable[[], tuple[dict[str, float], list[dict[str, str]]]]


def judge_of(model, tokenizer, options, pairs, corpus, target_lang):
    """A function that validates the model: loss and perplexity, BLEU or F1 with greedy search."""
    # At most the tokens that a device computes at a time in training, for which it has memory.
    parts = options.num_microbatches * model.distribute_strategy.num_replicas_in_sync
    batches = Batches(corpus, max(1, options.tokens_per_batch // parts), shuffle=False)
    reference_loss = ReferenceLoss(model, batches.epoch())
    search = {**task_of(tokenizer).search, "beam_size": 1}
    translator = translation_by(model, tokenizer, search, options.parallel_parts)
    judged = _sentences(pairs, _VALIDATION_SENTENCES)

    def judge():
        samples, of_languages = [], {}
        for code, sources, references, hypotheses in _by_language(translator, judged):
            task = task_of(tokenizer, code or target_lang)
            readable = (task.readable(sources, side) for side in (hypotheses, references))
            columns = ("source", "translation", "reference")
            rows = list(zip(sources, *readable, strict=True))
            language = {} if code is None else {"target_lang": code}
            samples += [
                {**dict(zip(columns, rows[row], strict=True)), **language}
                for row in _sample_rows(sources)
            ]
            of_languages[code] = task.figures(sources, hypotheses, references)
        return {**reference_loss(), **_mean(of_languages)}, samples

    return judge


def _mean(of_languages):
    """The mean of the figures of all target languages, and then those of each of several."""
    figures = {
        name: statistics.mean(each[name] for each in of_languages.values())
        for name in next(iter(of_languages.values()))
    }
    if len(of_languages) > 1:
        figures |= {
            f"{name} {code}": value
            for code, each in of_languages.items()
            for name, value in each.items()
        }
    return figures


def scored_part(pairs: SentencePairs, tokenizer: Tokenizer) -> str | None:
    """One line, if validations score only a part of the pairs; else None."""
    scored = sum(len(sources) for sources, _ in _sentences(pairs, _VALIDATION_SENTENCES).values())
    if scored == (count := pairs.check()):
        return None
    part = f"the first {scored:,} of {count:,} pairs"
    if languages := len(pairs.target_langs):
        part = f"the first {_VALIDATION_SENTENCES // languages:,} pairs of each language"
    return f"Validation {task_of(tokenizer).score} is of {part}; the loss is of all"


def digest_of_scored(pairs: SentencePairs) -> str:
    """A digest of the text that validations score: only scores of the same text are comparable."""
    lines = []
    for code, (sources, references) in _sentences(pairs, _VALIDATION_SENTENCES).items():
        lines += [*([] if code is None else [code]), *sources, *references]
    return digest_of("\n".join(lines).encode())


def translation_by(
    model: Transformer, tokenizer: Tokenizer, search: Mapping[str, Any], workers: int
) -> "Translator | _OfCurrentWeights":
    """A translator with a model's current weights, on the engine of commands (`engines.py`).

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
    if converted is None or tensorflow_has_gpu():
        return Translator(model, tokenizer, options, workers=workers)
    return _OfCurrentWeights(converted, options)


class _OfCurrentWeights:
    """Translates by CTranslate2, with the weights that a model has at each call."""

    def __init__(self, model, options):
        self.model, self.options = model, options

    def now(self):
        """A translator with the weights of this moment, which are converted once for it."""
        return CTranslate2Translator(self.model, self.options)

    def __call__(self, sources):
        return self.now()(sources)


def _by_language(translator, judged):
    """Yields each target language, its sources and references, and their translations."""
    if isinstance(translator, _OfCurrentWeights):
        translator = translator.now()
    for code, (sources, references) in judged.items():
        into = translator if code is None else translator.with_languages(code)
        yield code, sources, references, into(sources)


def report(model, tokenizer, pairs, target_lang, options, log, greedy=None):
    """Prints a model's scores on these pairs, with beam search, and some of its outputs.

    `greedy` is its score by greedy search on as many of them as validations score, if it is known.
    """
    search = task_of(tokenizer).search
    translator = translation_by(model, tokenizer, search, options.parallel_parts)
    for code, sources, references, hypotheses in _by_language(translator, _sentences(pairs)):
        task = task_of(tokenizer, code or target_lang)
        log.say(
            ("" if code is None else f"Into {code}:\n")
            + task.report(sources, hypotheses, references)
        )
        if greedy is not None:
            scored = (side[:_VALIDATION_SENTENCES] for side in (sources, hypotheses, references))
            by_beams = task.figures(*scored)[task.score]
            if by_beams < greedy - _WORSE:
                log.say(
                    f"Warning: beam search has {by_beams:.2f} {task.score}, greedy search "
                    f"{greedy:.2f}: it ends before long outputs do; try --patience=none, or "
                    "--beam_size=1"
                )
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
) -> dict[str | None, tuple[list[str], list[str]]]:
    """The first sources and references of each target language: its equal part of the limit."""
    codes = pairs.target_langs or (None,)
    most = None if limit is None else limit // len(codes)
    found: dict[str | None, tuple[list[str], list[str]]] = {code: ([], []) for code in codes}
    for block in pairs.blocks():
        sides = found[block.target_lang]
        room = None if most is None else most - len(sides[0])
        for side, lines in zip(sides, (block.source, block.target), strict=True):
            side += [line.decode("utf-8") for line in lines[:room]]
        if most is not None and all(len(sources) >= most for sources, _ in found.values()):
            break
    return {code: sides for code, sides in found.items() if sides[0]}
