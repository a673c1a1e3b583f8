"""Flags of the commands that search for translations, and the translator they describe."""

import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from absl import flags

from keras_transformer import engines, machine, text, training
from keras_transformer.cli.flags import (
    FLAGS,
    GROUPS,
    define_model_dirs,
    define_record_flags,
    given_fields,
    group,
    present,
    refuse,
)
from keras_transformer.errors import Unsupported, UserError, expect_named
from keras_transformer.glossary_translator import GlossaryTranslator
from keras_transformer.machine.gpu import has_gpu
from keras_transformer.options import SearchOptions
from keras_transformer.options.parsing import PARSER_SEARCH
from keras_transformer.options.records import LARGEST
from keras_transformer.options.search import MBR_TEMPERATURE, MOST_BEAMS, OF_SAMPLING
from keras_transformer.precision import PRECISIONS
from keras_transformer.text.glossary import Glossary

if TYPE_CHECKING:
    from keras_transformer.ctranslate2.translator import CTranslate2Translator
    from keras_transformer.minimum_bayes_risk import MinimumBayesRisk
    from keras_transformer.text.languages import Languages
    from keras_transformer.translator import Translator

_COMMANDS_OF = {
    "translation": "use `keras-transformer translate`, or `evaluate` without --task=parsing",
    "parsing": "use `keras-transformer parse`, or `evaluate` with --task=parsing",
}

# The headings of flags that a SavedModel may not support.
_HEADINGS = ("Model", "Input and output", "Search", "Speed")
# The flags that CTranslate2 does not support; `CTranslate2Translator` checks the fields of
# `SearchOptions`.
_TENSORFLOW_FLAGS = ("glossary", "jit_compile", "prefix")


def define_weights_flags() -> None:
    """Defines the flags that choose the weights of a model_dir."""
    flags.DEFINE_string(
        "weights",
        "auto",
        "weights to use: auto, those that `train` chose by the validation set, else mean; mean, "
        "that of the last checkpoints; ema, the moving average; best, the weights of the best "
        "validation; last, the last checkpoint; or the step of one checkpoint",
    )
    flags.DEFINE_integer(
        "average",
        None,
        "number of last checkpoints in the mean, which it implies; default: --average_checkpoints "
        "of the training",
    )


def define_model_flags(required: bool = True) -> None:
    """Defines the flags that choose the models that `load_translator` loads.

    Args:
        required: whether absl refuses a command line without `--model_dir`.
    """
    with group("Model"):
        define_model_dirs(
            "folder of a trained model; several, separated by commas and with the same "
            "vocabulary, form an ensemble",
            required,
        )
        define_weights_flags()


def define_language_flags(about_target: str = "") -> None:
    """Defines the flags that choose the languages of a model for several of them.

    Args:
        about_target: what else the help of `--target_lang` says.
    """
    with group("Model"):
        flags.DEFINE_string(
            "source_lang",
            None,
            "code of the language to translate from, for M2M100 and NLLB; with --split=sentences, "
            "also the language by whose rules text is split",
        )
        flags.DEFINE_string(
            "target_lang",
            None,
            "code of the language to translate into, for a model of several languages"
            + about_target,
        )


def model_languages(paths: Sequence[str] | None = None) -> "Languages | None":
    """The languages of the first model, if it is for several; None for any other.

    Args:
        paths: model_dirs; default: those of `--model_dir`.

    Raises:
        UserError: no folder is named, it has no model, or the vocabulary is not that of the model.
    """
    paths = FLAGS.model_dir if paths is None else paths
    _expect_named(paths)
    model_dir = training.ModelDir(paths[0])
    model_dir.load_config()  # refuses a folder without a model
    return model_dir.load_languages()


def chosen_languages(languages: "Languages | None") -> dict[str, str]:
    """The languages that the flags choose, as arguments of `engines.load`.

    Args:
        languages: those of the model, from `model_languages`.

    Raises:
        UserError: the model is for several languages, and has not those of the flags.
    """
    if languages is None:
        return {}
    source = FLAGS.source_lang if languages.in_target else None
    languages.direction(FLAGS.target_lang, source)
    return {"target_lang": FLAGS.target_lang} | ({"source_lang": source} if source else {})


def define_search_flags(defaults: Mapping[str, str] | None = None) -> None:
    """Defines the other flags that `load_translator` reads.

    Args:
        defaults: the defaults that help shows for some fields of `SearchOptions`, in place of
            their own.
    """
    with group("Search"):
        define_record_flags(SearchOptions, defaults=defaults or {})
    with group("Speed"):
        flags.DEFINE_enum(
            "precision", "float32", PRECISIONS, "precision of weights and matrix products"
        )
        flags.DEFINE_bool(
            "jit_compile",
            False,
            "compile the search with XLA: slow to start, faster for tens of thousands of lines",
        )
        flags.DEFINE_integer(
            "workers",
            None,
            "number of batches to translate in parallel; default: one for each core, with "
            "TensorFlow 1",
            lower_bound=1,
            upper_bound=1024,
        )
        flags.DEFINE_integer(
            "tokens_per_batch",
            4096,
            "maximum number of tokens in a batch, counting the maximum output length",
            lower_bound=1,
            upper_bound=LARGEST,
        )


def define_mbr_flag() -> None:
    """Defines the flag of the commands that can translate by minimum Bayes risk."""
    with group("Search"):
        flags.DEFINE_integer(
            "mbr",
            None,
            "translate by minimum Bayes risk: draw this many samples of each sentence, and choose "
            "the translation that resembles them most, by chrF; --temperature, --top_k, --top_p "
            f"and --seed are those of the samples; default: no samples; temperature: "
            f"{MBR_TEMPERATURE}",
            lower_bound=2,
            upper_bound=MOST_BEAMS,
        )


def define_engine_flag() -> None:
    """Defines the flag of the commands that can translate with CTranslate2."""
    with group("Speed"):
        flags.DEFINE_enum(
            "engine",
            "auto",
            engines.ENGINES,
            "engine that translates: auto, CTranslate2 on a CPU where it supports the model and "
            "all flags, else TensorFlow; or one of the two",
        )


def define_glossary_flag() -> None:
    """Defines the flag of the commands that can translate with a glossary."""
    with group("Search"):
        flags.DEFINE_string(
            "glossary",
            None,
            "file of terms, one a line: a term of the source, a tab, and its translation or, in "
            "further columns, other forms of it; where a term occurs, the translation contains one "
            "of its forms",
        )


def read_glossary() -> Glossary | None:
    """Reads the file of `--glossary`; None without the flag.

    Raises:
        UserError: the file is no glossary, or the flags do not search for one translation.
    """
    if FLAGS.glossary is None:
        return None
    expect_named("glossary", FLAGS.glossary)
    if FLAGS.sample:
        refuse(["glossary"], "with --sample, which does not search")
    if _uses_mbr():
        refuse(["glossary"], "with --mbr, whose samples would not contain the terms")
    return Glossary.read(FLAGS.glossary)


def with_glossary(
    translator: "Translator", glossary: Glossary | None, keep: Sequence[str] = ()
) -> "Translator | GlossaryTranslator":
    """Returns the translator itself or, with a glossary, one that translates its terms.

    Args:
        translator: the translator.
        glossary: the terms; None for none.
        keep: regular expressions of placeholders, whose text has no terms.

    Raises:
        UserError: the vocabulary cannot spell a form of a term.
    """
    if glossary is None:
        return translator
    check_spelling(glossary, translator)
    return GlossaryTranslator(translator, glossary, keep)


def check_spelling(glossary: Glossary, translator: "Translator") -> None:
    """Refuses a glossary with a form that the vocabulary cannot spell, by its line."""
    for form in translator.unspellable(glossary.places):
        place = glossary.places[form]
        raise UserError(f"{place}: the vocabulary of the model cannot spell {form!r}: leave it out")


def uses_ctranslate2(paths: Sequence[str] | None = None) -> bool:
    """Whether CTranslate2 translates: as `--engine` says, or where it can do what the flags ask.

    Args:
        paths: model_dirs; default: those of `--model_dir`.

    Raises:
        UserError: `--engine` is auto, and a folder holds no model or a flag is out of range.
    """
    return "engine" in FLAGS and why_tensorflow(paths) is None


def why_tensorflow(paths: Sequence[str] | None = None) -> str | None:
    """Says why TensorFlow translates, for `--engine`; None if CTranslate2 does.

    Arguments and errors are those of `uses_ctranslate2`.
    """
    if FLAGS.engine != "auto":
        return None if FLAGS.engine == "ctranslate2" else "--engine=tensorflow"
    for name in _tensorflow_flags():
        if FLAGS[name].value != FLAGS[name].default:
            return f"CTranslate2 does not support --{name}"
    paths = FLAGS.model_dir if paths is None else paths
    _expect_named(paths)
    reason = engines.why_tensorflow(paths, FLAGS.precision, _search_options())
    # "sample=True" is a flag, "positions=rotary" is the model's.
    found = re.search(r" (\w+)=(\S+)", reason or "")
    if reason and found and found[1] in FLAGS and FLAGS[found[1]].present:
        flag = found[1] if found[2] == "True" else f"{found[1]}={found[2].lower()}"
        return reason.replace(found[0], f" --{flag}")
    return reason


def _uses_mbr():
    return "mbr" in FLAGS and FLAGS.mbr is not None


def _search_options():
    """The given search options; with `--mbr`, not those of its samples."""
    options = given_fields(SearchOptions)
    if _uses_mbr():
        refuse(present(["sample"]), "with --mbr, which samples by itself")
        options = {name: value for name, value in options.items() if name not in OF_SAMPLING}
    return options


def mbr_options() -> dict[str, Any]:
    """The arguments of `MinimumBayesRisk` that the flags give; empty without `--mbr`."""
    if not _uses_mbr():
        return {}
    return {"samples": FLAGS.mbr} | {name: FLAGS[name].value for name in present(OF_SAMPLING)}


def say_engine(doing: str) -> None:
    """Prints one line on standard error with the engine that `--engine=auto` has chosen, and why.

    Args:
        doing: beginning of the line, such as "Translating".
    """
    if FLAGS.engine == "auto":
        reason = why_tensorflow()
        engine = "CTranslate2" if reason is None else f"TensorFlow: {reason}"
        if reason is None and has_gpu():
            engine += " on the CPU: TensorFlow lacks the libraries for this machine's GPU"
        print(f"{doing} with {engine}", file=sys.stderr)


def expect_only_flags(supported: Collection[str], by: str, advice: str) -> None:
    """Refuses flags of the model, input, search and speed that would be ignored.

    Args:
        supported: names of the supported flags.
        by: what supports them, such as "CTranslate2".
        advice: what to do about another flag.

    Raises:
        UserError: another flag is given.
    """
    for name in present([name for heading in _HEADINGS for name in GROUPS.get(heading, ())]):
        if name not in supported:
            raise Unsupported(by, f"--{name}", advice)


def _tensorflow_flags():
    return present([name for name in _TENSORFLOW_FLAGS if name in FLAGS])


def check_engine() -> None:
    """Refuses the flags that `--engine=ctranslate2` would ignore.

    Raises:
        UserError: one of them is given.
    """
    if FLAGS.engine == "ctranslate2":
        advice = "leave it out, or use --engine=tensorflow"
        for name in _tensorflow_flags():
            raise Unsupported("CTranslate2", f"--{name}", advice)


def parser_defaults() -> dict[str, str]:
    """The search defaults of parsers, as help shows them."""
    brackets, words = PARSER_SEARCH["brackets"], PARSER_SEARCH["words"]
    shown = {name: "none" if value is None else str(value) for name, value in brackets.items()}
    return {
        name: text if brackets[name] == words[name] else f"{text}, or {words[name]} for words"
        for name, text in shown.items()
    }


def refuse_n_best(why: str) -> None:
    """Refuses `--n_best` for a command that uses one result for each sentence.

    Raises:
        UserError: it is above 1.
    """
    if (FLAGS.n_best or 1) > 1:
        raise UserError(f"--n_best={FLAGS.n_best} has no effect: {why}")


def share_cores_among_workers() -> None:
    """Gives each of `--workers` its share of the cores; with XLA, all workers share all threads."""
    machine.share_cores(1 if FLAGS.jit_compile else FLAGS.workers or 1)


def expect_task(tokenizer: "text.Tokenizer", task: str, path: str | os.PathLike) -> None:
    """Refuses a model that was trained for another task.

    Args:
        tokenizer: the model's tokenizer.
        task: "translation" or "parsing".
        path: the model_dir, which the message names.

    Raises:
        UserError: the task is another one.
    """
    if tokenizer.task != task:
        raise UserError(
            f"{path} is a model for {tokenizer.task}, not for {task}: "
            f"{_COMMANDS_OF[tokenizer.task]}"
        )


def _expect_named(paths):
    """Refuses an empty `--model_dir`, or an empty name in it."""
    for path in paths or [""]:
        expect_named("model_dir", path)


def load_translator(
    task: str | None,
    paths: Sequence[str] | None = None,
    workers: int | None = None,
    engine: str | None = None,
    with_languages: bool = False,
    precision: str | None = None,
) -> "Translator | CTranslate2Translator":
    """Loads the translator that the flags describe.

    Args:
        task: "translation" or "parsing", or None for either.
        paths: model_dirs of the ensemble; default: those of `--model_dir`.
        workers: batches that a `Translator` computes in parallel; default: `--workers`.
        engine: "tensorflow" or "ctranslate2"; default: as `uses_ctranslate2` says.
        with_languages: whether the flags choose the languages of a model for several of them.
        precision: default: `--precision`.

    Raises:
        UserError: the model is for another task, or the flags do not fit it.
    """
    paths = FLAGS.model_dir if paths is None else paths
    precision = precision or FLAGS.precision
    _expect_named(paths)
    options = {"tokens_per_batch": FLAGS.tokens_per_batch, **_search_options()}
    if with_languages:
        options |= chosen_languages(model_languages(paths))
    if engine is None:
        is_parser = task == "parsing"  # TensorFlow says so if the model is none
        engine = "ctranslate2" if not is_parser and uses_ctranslate2(paths) else "tensorflow"
    if engine == "tensorflow":
        if precision == "int8" and not FLAGS.jit_compile:
            raise UserError("--precision=int8 needs --jit_compile: without it int8 is slower")
        if task is not None:
            first = training.ModelDir(paths[0])
            first.load_config()  # fails if the folder holds no model
            expect_task(first.load_tokenizer(), task, first.path)
        options["jit_compile"] = FLAGS.jit_compile
    else:
        workers = None  # one engine computes several batches
    if workers := workers or FLAGS.workers:
        options["workers"] = workers
    return engines.load(
        paths,
        weights=FLAGS.weights,
        average=FLAGS.average,
        engine=engine,
        precision=precision,
        **options,
    )


def with_mbr(
    translator: "Translator | CTranslate2Translator",
) -> "Translator | CTranslate2Translator | MinimumBayesRisk":
    """Returns the translator itself or, with `--mbr`, one by minimum Bayes risk.

    Raises:
        UserError: a flag of the samples is out of range or not supported by the engine.
    """
    if options := mbr_options():
        from keras_transformer.minimum_bayes_risk import MinimumBayesRisk  # imports sacreBLEU

        return MinimumBayesRisk(translator, **options)
    return translator
