"""BLEU and chrF of a translated corpus (section 6.1), each with its signature.

BLEU figures are comparable only if text was prepared in the same way. So the figures to publish
(sacreBLEU, on plain text) stand beside those of older papers (on tokens), each with its signature.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.metrics.base import Metric

from keras_transformer.errors import UserError
from keras_transformer.text.language_code import check_language_code, short_code
from keras_transformer.text.scripts import UNSPACED_SCRIPTS, main_script
from keras_transformer.text.sentences import as_text, utf_8

LABELS = {"bleu": "sacreBLEU", "bleu_lowercased": "sacreBLEU, lowercased", "chrf": "chrF"}

# sacreBLEU's tokenizers for languages that it does not know, without spaces between words. Else it
# would take a whole sentence for one word, and find no sequence of four words in it: BLEU 0.
_TOKENIZERS = {
    **dict.fromkeys(("bo", "dz", "km", "lo", "my", "shn", "th"), "char"),
    **dict.fromkeys(("lzh", "wuu", "yue"), "zh"),
}


@dataclass(frozen=True)
class Score:
    """One figure: its name, its value, from 0 to 100 but for TER, and its sacreBLEU signature.

    `dataclasses.asdict(score)` is ready for JSON.
    """

    label: str
    value: float
    signature: str


def translation_scores(
    hypotheses: Iterable[str],
    references: Iterable[str] | Sequence[Sequence[str]],
    target_lang: str | None = None,
    on_tokens: bool = True,
) -> dict[str, Score]:
    """Scores a corpus of translations against one reference each, or several.

    Args:
        hypotheses: the translations as plain text, neither tokenised nor lowercased; may be empty
            strings.
        references: the reference translations as plain text, in the same order; for several of each
            sentence a list of such lists, as sacreBLEU takes them.
        target_lang: code of the target language, such as `"de"` or `"zh-cn"`.
        on_tokens: whether to compute BLEU on Moses tokens too, to compare with older papers.

    Returns:
        A dictionary with `bleu`, `bleu_lowercased` and `chrf` (sacreBLEU). With `on_tokens`, if the
        Moses tokenizer knows `target_lang`, it also has `bleu_tokenized_lowercased` (comparable
        with the Multi30k literature) and `bleu_paper` (comparable with Table 2). The latter is
        cased, on text prepared as in the authors' `get_ende_bleu.sh`: Unicode punctuation replaced,
        tokenised, hyphenated compounds split.

    Raises:
        UserError: the counts differ, there is nothing to score, `target_lang` is not the code of
            a language, or sacreBLEU lacks its word segmenter (Japanese, Korean).

    Example:
        >>> scores = translation_scores(["Ein Mann reitet ."], ["Ein Mann reitet."], "de")
        >>> scores["bleu_lowercased"].signature
        'nrefs:1|case:lc|eff:no|tok:13a|smooth:exp|version:...'
        >>> two = [["Ein Mann reitet."], ["Ein Reiter."]]
        >>> translation_scores(["Ein Reiter ."], two, "de")["bleu"].signature
        'nrefs:2|case:mixed|eff:no|tok:13a|smooth:exp|version:...'
    """
    hypotheses, lists = checked_texts(hypotheses, references)
    check_language(target_lang)
    scores = {
        name: _score(LABELS[name], metric, hypotheses, lists)
        for name, metric in plain_metrics(target_lang).items()
    }
    if target_lang and on_tokens:
        scores.update(_scores_on_tokens(hypotheses, lists, target_lang))
    return scores


def checked_texts(
    hypotheses: Iterable[str], references: Iterable[str] | Sequence[Sequence[str]]
) -> tuple[list[str], list[list[str]]]:
    """The translations, and their references as `reference_lists` gives them.

    Raises:
        UserError: the counts differ, or there is nothing to score.
    """
    hypotheses, lists = as_text(hypotheses, "hypotheses"), reference_lists(references)
    if len(hypotheses) != len(lists[0]):
        raise UserError(
            f"hypotheses and references must have the same length: found {len(hypotheses)} and "
            f"{len(lists[0])}"
        )
    if not hypotheses:
        raise UserError("hypotheses must have at least one sentence to score: found none")
    return hypotheses, lists


def reference_lists(references: Iterable[str] | Sequence[Sequence[str]]) -> list[list[str]]:
    """The references as sacreBLEU takes them: a list for the first of each sentence, and so on.

    Raises:
        UserError: the lists differ in length, or something is not a string.
    """
    if isinstance(references, Sequence) and references and isinstance(references[0], list | tuple):
        lists = [as_text(each, "references") for each in references]
    else:
        lists = [as_text(cast(Iterable[str], references), "references")]
    if len(sizes := set(map(len, lists))) > 1:
        found = " and ".join(map(str, sorted(sizes)))
        raise UserError(f"lists of references must have the same length: found {found}")
    return lists


def sacre_bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    target_lang: str | None = None,
    lowercase: bool = False,
) -> Score:
    """Scores translations by sacreBLEU alone, which cuts Japanese and Korean into words.

    Chinese, Thai and other languages without spaces are cut into characters. Arguments are those of
    `translation_scores`, checked already.

    Example:
        >>> sacre_bleu(["我爱吃苹果。"], ["我爱吃苹果。"], "zh").signature
        'nrefs:1|case:mixed|eff:no|tok:zh|smooth:exp|version:...'
    """
    name = "bleu_lowercased" if lowercase else "bleu"
    return _score(LABELS[name], plain_metrics(target_lang)[name], hypotheses, [references])


def plain_metrics(target_lang: str | None) -> dict[str, Metric]:
    """sacreBLEU's metrics of plain text, new ones, under the names of `LABELS`."""
    language = _code_in_tools(target_lang)
    words: dict[str, Any] = {"trg_lang": language, "tokenize": _TOKENIZERS.get(language)}
    return {
        "bleu": BLEU(**words),
        "bleu_lowercased": BLEU(lowercase=True, **words),
        "chrf": CHRF(),
    }


def check_language(target_lang: str | None) -> None:
    """Raises `UserError` for what is not the code of a language that sacreBLEU can score.

    It lacks the word segmenters of Japanese and Korean if their packages are not installed.
    """
    check_language_code(target_lang)
    try:
        BLEU(trg_lang=_code_in_tools(target_lang))
    except RuntimeError as error:
        message = " ".join(str(error).split())
        raise UserError(f"cannot score {target_lang!r}: {message}") from error


def language_warning(references: Iterable[str], target_lang: str | None, where: str) -> str | None:
    """One line, if BLEU needs the language of the references, but has none; else None.

    Args:
        references: the reference translations.
        target_lang: code of the target language, or None.
        where: where they stand, such as "valid.zh".
    """
    if target_lang is not None or main_script(references) not in UNSPACED_SCRIPTS:
        return None
    return (
        f"Warning: the targets of {where} have no spaces between words, so BLEU without "
        "target_lang is about 0, however good the translations are: give it, such as "
        "--target_lang=zh"
    )


def short_lines_warning(
    references: Sequence[str], target_lang: str | None, where: str
) -> str | None:
    """One line, if BLEU is 0 even for the references themselves; else None.

    BLEU compares sequences of one to four words, so it needs a line of at least four.

    Args:
        references: the reference translations.
        target_lang: code of the target language, or None.
        where: where they stand, such as "valid.de".

    Example:
        >>> short_lines_warning(["Haus", "Hund"], None, "words.de")
        'Warning: no target of words.de has four words, so BLEU is 0, however good the ...'
    """
    is_usual = any(len(line.split()) >= 4 for line in references)  # almost all text; it is fast
    if is_usual or sacre_bleu(references, references, target_lang).value > 0:
        return None
    return (
        f"Warning: no target of {where} has four words, so BLEU is 0, however good the "
        "translations are: compare them by chrF"
    )


def has_moses_tokens(language: str | None) -> bool:
    """Whether the Moses tokenizer knows a language, given by its code."""
    # Imported here: it takes up to a second, which would delay every command.
    from keras_transformer.evaluation import moses

    return _code_in_tools(language) in moses.LANGUAGES


def _code_in_tools(language):
    """The code by which sacreBLEU and Moses know a language; empty for none."""
    return short_code(language or "")


def split_compounds(tokens: str) -> str:
    """Splits hyphenated compounds as the paper's authors did before computing BLEU.

    Args:
        tokens: a tokenised sentence, with tokens separated by blanks.

    Returns:
        The sentence with each compound `A-B` as `A ##AT##-##AT## B`. Matches do not overlap, so
        the second hyphen of `a-b-c` stays.

    Example:
        >>> split_compounds("ein T-Shirt")
        'ein T ##AT##-##AT## Shirt'
    """
    # Bytes, since the authors' Perl script worked on bytes: in "face-à-face" each match takes one
    # of the two bytes of "à", so that both hyphens split.
    split = re.sub(rb"(\S)-(\S)", rb"\1 ##AT##-##AT## \2", utf_8(tokens))
    return split.decode()


def format_scores(scores: Mapping[str, Score]) -> str:
    """Formats scores as a table, one line each: value, label, signature.

    Example:
        >>> print(format_scores({"chrf": Score("chrF", 61.5, "nrefs:1|case:mixed")}))
         61.50  chrF  nrefs:1|case:mixed
    """
    width = max(len(score.label) for score in scores.values())
    return "\n".join(
        f"{score.value:6.2f}  {score.label:<{width}}  {score.signature}"
        for score in scores.values()
    )


def _scores_on_tokens(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], language: str
) -> dict[str, Score]:
    if not has_moses_tokens(language):
        return {}
    from keras_transformer.evaluation import moses  # see `has_moses_tokens`

    language = _code_in_tools(language)

    def lowercased_tokens(sentences):
        # Lowercased first, as in Multi30k's own preparation: case matters for abbreviations.
        lowercased = [sentence.lower() for sentence in sentences]
        return moses.tokenize(moses.normalize_punctuation(lowercased, language), language)

    def tokens_of_paper(sentences):
        # As in tensor2tensor's get_ende_bleu.sh, whose reference is already tokenised. Ours is
        # plain text, and is prepared like the translations.
        replaced = moses.replace_unicode_punctuation(sentences)
        return [split_compounds(tokens) for tokens in moses.tokenize(replaced, language)]

    return {
        "bleu_tokenized_lowercased": _score(
            "BLEU on Moses tokens, lowercased",
            BLEU(lowercase=True, tokenize="none", force=True, smooth_method="none"),
            lowercased_tokens(hypotheses),
            list(map(lowercased_tokens, references)),
            tokenizer=f"{moses.NAME}-{language}-normalized",
        ),
        "bleu_paper": _score(
            "BLEU on Moses tokens, compounds split",
            BLEU(tokenize="none", force=True, smooth_method="none"),
            tokens_of_paper(hypotheses),
            list(map(tokens_of_paper, references)),
            tokenizer=f"{moses.NAME}-{language}-unicode_replaced-compounds",
        ),
    }


def _score(
    label: str,
    metric: Metric,
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    tokenizer: str | None = None,
) -> Score:
    value = metric.corpus_score(hypotheses, references).score
    signature = metric.get_signature()
    if tokenizer:
        signature.update("tok", tokenizer)
    return Score(label, value, str(signature))
