r"""Checks the text files of a corpus, and writes the pairs that break no rule.

  keras-transformer corpus --source=raw.en --target=raw.de
  keras-transformer corpus --source=raw.en --target=raw.de \
      --valid_source=valid.en --valid_target=valid.de --test_source=test.en --test_target=test.de \
      --source_lang=en --target_lang=de --output_source=train.en --output_target=train.de
  keras-transformer corpus --source=raw.en --target=raw.de --skip_rules=copy,number --max_words=80

It prints lengths, and how many pairs break each rule. With --output_source and --output_target, it
writes all others, and a file of examples of what it dropped.
"""

import string
from pathlib import Path

from absl import flags

from keras_transformer import data
from keras_transformer.cli.command import Command
from keras_transformer.cli.flags import (
    FLAGS,
    define_list,
    define_record_flags,
    given_fields,
    group,
    present,
    refuse,
)
from keras_transformer.cli.outputs import check_files, writing
from keras_transformer.errors import UserError, expect_named
from keras_transformer.files import refuse_existing
from keras_transformer.options.cleaning import RULES, CleaningOptions
from keras_transformer.text.language_code import check_language_code

SETS = ("valid", "test")
LANGUAGES = ("source_lang", "target_lang")
HELD_OUT = tuple(f"{name}_{side}" for name in SETS for side in ("source", "target"))
OUTPUTS = ("output_source", "output_target", "examples")


def define_flags() -> None:
    with group("Corpus"):
        define_list(
            "source",
            None,
            "text files of sentences, one a line, plain or .gz; patterns such as 'part-*.en' stand "
            "for their files, sorted by name",
            required=True,
        )
        define_list("target", None, "their translations, line by line", required=True)
        for name, what in (("valid", "validation"), ("test", "test")):
            define_list(
                f"{name}_source", None, f"files of the {what} set, whose lines must not occur"
            )
            define_list(f"{name}_target", None, f"translations of --{name}_source")
        for side in ("source", "target"):
            flags.DEFINE_string(
                f"{side}_lang",
                None,
                f"code of the {side} language, such as en, for rule language; default: not checked",
            )
    with group("Output"):
        flags.DEFINE_string(
            "output_source", None, "file for the sources of all pairs that break no rule"
        )
        flags.DEFINE_string("output_target", None, "file for their targets")
        flags.DEFINE_string(
            "examples",
            None,
            "file for examples of each rule: rule, place, source and target, separated by tabs; "
            "default: the name of --output_source with .dropped.tsv",
        )
        flags.DEFINE_bool("overwrite", False, "overwrite existing files")
    with group("Rules"):
        define_list("skip_rules", [], f"rules that are off, of {', '.join(RULES)}")
        define_record_flags(CleaningOptions)


def main():
    # Imported here, not at the top: it needs NumPy and TensorFlow.
    from keras_transformer.data.mixed_up import exchanged, slipped

    for name in ("source", "target", *OUTPUTS, *LANGUAGES):
        if FLAGS[name].value is not None:
            expect_named(name, FLAGS[name].value)
    check_rules()
    pairs, sets = data.TextPairs(FLAGS.source, FLAGS.target), held_out_sets()
    paths = output_paths([pairs, *sets])
    options = CleaningOptions(**given_fields(CleaningOptions))
    rules = data.PairRules(
        options,
        data.Usual.of(pairs),
        FLAGS.skip_rules,
        (FLAGS.source_lang, FLAGS.target_lang),
        data.HeldOut.of(sets) if sets else None,
    )
    with writing(paths) as files:
        outputs = [files[name] for name in OUTPUTS[:2] if name in files]

        def keep(*sides):
            for file, line in zip(outputs, sides, strict=True):
                file.write(line + b"\n")

        findings = data.check_pairs(pairs, rules, keep if outputs else None)
        kept = findings.pairs - findings.suspicious
        if outputs and not kept:
            counts = [f"{rule} {count:,}" for rule, count in findings.broken.items() if count]
            raise UserError(
                f"{pairs.description}: every pair breaks a rule ({', '.join(counts)}), so none is "
                "left: read --examples=FILE, without --output_source, and turn rules off by "
                "--skip_rules or change their limits"
            )
        if "examples" in files:
            rows = ["\t".join(example) + "\n" for example in findings.examples]
            files["examples"].write("".join(rows).encode("utf-8", "backslashreplace"))
    print(data.format_findings(findings, options))
    if slip := slipped(findings.characters):
        print(f"\nWarning: {pairs.description}: {slip}")
    for other in exchanged(pairs, sets):
        print(f"\nWarning: source and target of {other.description} seem to be exchanged")
    if outputs:
        print(
            f"\nWrote {kept:,} pairs to {FLAGS.output_source} and {FLAGS.output_target}; dropped "
            f"{findings.suspicious:,}"
        )
    if "examples" in paths:
        print(f"Wrote examples of suspicious pairs to {paths['examples']}")


def check_rules():
    """Refuses unknown rules, mistyped languages, and flags of rules that are off."""
    for name in LANGUAGES:
        check_language_code(FLAGS[name].value, f"--{name}")
    for rule in FLAGS.skip_rules:
        if rule not in RULES:
            raise UserError(f"--skip_rules: there is no rule {rule!r}: use {', '.join(RULES)}")
        limits = [name for _, name, *_ in string.Formatter().parse(RULES[rule]) if name]
        others = {"language": LANGUAGES, "overlap": HELD_OUT}.get(rule, ())
        refuse(present([*limits, *others]), f"with --skip_rules={rule}")
    if not present(LANGUAGES):
        refuse(present(["min_confidence"]), "without --source_lang or --target_lang")


def held_out_sets():
    """The validation set and the test set, as far as they are given."""
    sets = []
    for name in SETS:
        sides = [f"{name}_{side}" for side in ("source", "target")]
        given = [side for side in sides if FLAGS[side].value is not None]
        if len(given) == 1:
            raise UserError(f"--{sides[0]} and --{sides[1]} go together: found only one of them")
        if given:
            for side in sides:
                expect_named(side, FLAGS[side].value)
            sets.append(data.TextPairs(*(FLAGS[side].value for side in sides)))
    return sets


def output_paths(inputs):
    """The files to write, by their flags; refuses those that cannot or must not be written."""
    given = [name for name in OUTPUTS if FLAGS[name].value]
    if len({*given}.difference(["examples"])) == 1:
        raise UserError("--output_source and --output_target go together: found only one of them")
    if not given:
        refuse(["overwrite"] * FLAGS.overwrite, "without a file to write")
    paths = {name: Path(FLAGS[name].value) for name in given}
    if "output_source" in paths and "examples" not in paths:
        name = str(paths["output_source"]).removesuffix(".gz")
        paths["examples"] = Path(f"{name}.dropped.tsv")
    read = [path for pairs in inputs for path in (*pairs.source, *pairs.target)]
    check_files(read, paths.values())
    if not FLAGS.overwrite:
        refuse_existing(paths.values())
    return paths


COMMAND = Command(main, __doc__, needs_tensorflow=lambda: False)
