"""Every flag of `train` when a run is resumed: it may change, or another value is refused.

A new flag fails the first test until it is classified here. Whatever changes what a validation's
score means is refused, so that validations of one run can be compared.
"""

import contextlib
import re
from typing import NamedTuple

import pytest
from absl import flags
from command_lines import FEW_STEPS, TINY_MODEL, begin, refused, run

from keras_transformer.cli import train as command
from keras_transformer.cli.flags import GROUPS
from keras_transformer.data.builtin.corpus import builtin_pairs
from keras_transformer.text import SubwordTokenizer
from keras_transformer.training.preparation import prepare


class Case(NamedTuple):
    """Flags that differ when a run is resumed; None leaves one out.

    Attributes:
        run: the run that is resumed.
        changed: the flags.
        message: what refuses them; empty if they may change.
    """

    run: str
    changed: dict
    message: str = ""


def may_change(run="text", **changed):
    return Case(run, changed)


def refuse(message, run="text", **changed):
    return Case(run, changed, message)


def other_model(**changed):
    return refuse(f"model of another configuration: .*{next(iter(changed))}=", **changed)


def other_training(run="text", **changed):
    return refuse(f"run with other options or data: {next(iter(changed))}=", run, **changed)


TEXT = {"train_source": "train.en", "train_target": "train.de"}
TEXT |= {"valid_source": "valid.en", "valid_target": "valid.de", "target_lang": "de"}
PARSER = {"task": "parsing", "train_source": "train.mrg", "valid_source": "valid.mrg"}
OTHER_PAIRS = "run with other options or data: .*other training pairs"
OTHER_VALIDATION = "run with other options or data: other validation pairs"

CASES = {
    # What the model is, and is trained on.
    "preset": refuse("run of preset tiny", preset="small"),
    "task": refuse(
        "has a model for translation, but the data are for parsing",
        **{**dict.fromkeys([*TEXT, "preset"]), **PARSER},
    ),
    "train_source": refuse(OTHER_PAIRS, train_source="other.en"),
    "train_target": refuse(OTHER_PAIRS, train_target="other.de"),
    "train_weights": refuse(
        OTHER_PAIRS,
        train_source="train.en,other.en",
        train_target="train.de,other.de",
        train_weights="1,3",
    ),
    "target_langs": refuse(
        "target_langs=de is not in the vocabulary", target_langs="de", target_lang=None
    ),
    "normalization": refuse("normalization=source", normalization="both"),
    "start_from": refuse(r"start_from=None \(now ", start_from="parser"),
    "tfds": refuse(OTHER_PAIRS, "folder", tfds="other_data"),
    "source_lang": refuse(OTHER_PAIRS, "folder", source_lang="fr"),  # of files, it may change
    "train_split": refuse(OTHER_PAIRS, "folder", train_split="test"),
    "vocab_type": other_training(vocab_type="unigram"),
    "symbols": refuse("was made with other symbols", symbols="other.symbols"),
    "vocabulary": refuse("another vocabulary than", vocabulary="other.model"),
    "max_length": other_training(max_length=50),
    "bpe_dropout": other_training(bpe_dropout=0.5),
    "extra_source": refuse(OTHER_PAIRS, "parser", extra_source="valid.mrg"),
    "extra_weight": refuse(OTHER_PAIRS, "parser", extra_weight=3.0),
    "substituted": refuse(OTHER_PAIRS, "parser", substituted=1),
    "substituted_share": refuse(OTHER_PAIRS, "parser", substituted_share=1.0),
    "linearization": refuse("linearization=brackets", "parser", linearization="words"),
    "vocab_size": other_model(vocab_size=350),
    "target_vocab_size": other_model(target_vocab_size=300, share_embeddings=False),
    "num_encoder_layers": other_model(num_encoder_layers=2),
    "num_decoder_layers": other_model(num_decoder_layers=2),
    "d_model": other_model(d_model=32),
    "d_ff": other_model(d_ff=32),
    "activation": other_model(activation="gelu"),
    "num_heads": other_model(num_heads=4),
    "d_k": other_model(d_k=4),
    "d_v": other_model(d_v=4),
    "attention_bias": other_model(attention_bias=True),
    "dropout": other_model(dropout=0.2),
    "attention_dropout": other_model(attention_dropout=0.2),
    "activation_dropout": other_model(activation_dropout=0.2),
    "label_smoothing": other_model(label_smoothing=0.2),
    "pre_norm": other_model(pre_norm=False),
    "positions": other_model(positions="rotary"),
    "source_end": other_model(source_end=False),
    "max_positions": other_model(max_positions=512),
    "share_embeddings": other_model(share_embeddings=False),
    "scale_embeddings": other_model(scale_embeddings=False),
    "tie_output": other_model(tie_output=False),
    "output_bias": other_model(output_bias=True),
    "layer_norm_epsilon": other_model(layer_norm_epsilon=1e-5),
    "layer_type": other_model(layer_type="recurrent"),
    "radius": other_model(radius=3, layer_type="restricted"),
    "kernel_size": other_model(kernel_size=3, layer_type="convolutional"),
    # What a validation's score means.
    "valid_source": refuse(OTHER_VALIDATION, valid_source="other_valid.en"),
    "valid_target": refuse(OTHER_VALIDATION, valid_target="typographic.de"),
    "valid_split": refuse(OTHER_VALIDATION, "folder", valid_split="test"),
    "target_lang": refuse(r"run of target_lang=de \(now zh\)", target_lang="zh"),
    "lowercase": other_training(lowercase=True),
    "best_by": other_training(best_by="loss"),
    # How it is trained.
    "tokens_per_batch": other_training(tokens_per_batch=128),
    "learning_rate": other_training(learning_rate=0.5),
    "warmup_steps": other_training(warmup_steps=20),
    "optimizer": other_training(optimizer="muon"),
    "beta_1": other_training(beta_1=0.5),
    "beta_2": other_training(beta_2=0.5),
    "adam_epsilon": other_training(adam_epsilon=1e-8),
    "bidirectional_steps": other_training(bidirectional_steps=1),
    "r_drop": other_training(r_drop=1.0),
    "clip_norm": other_training(clip_norm=1.0),
    "ema_decay": other_training(ema_decay=0.9),
    "seed": other_training(seed=2),
    "word_dropout": other_training("parser", word_dropout=0.5),
    "dtype_policy": other_training(dtype_policy="mixed_bfloat16"),
    "num_microbatches": other_training(num_microbatches=2),
    "parallel_parts": other_training(parallel_parts=2),
    # When it ends, what it keeps and says, and where it runs.
    "steps": may_change(steps=3),
    "cooldown_steps": may_change(cooldown_steps=1),
    "stop_patience": may_change(stop_patience=2),
    "max_skipped_updates": may_change(max_skipped_updates=3),
    "checkpoint_steps": may_change(checkpoint_steps=2),
    "checkpoint_minutes": may_change(checkpoint_minutes=1.0),
    "keep_checkpoints": may_change(keep_checkpoints=30),
    "average_checkpoints": may_change(average_checkpoints=2),
    "validation_steps": may_change(validation_steps=2),
    "report_steps": may_change(report_steps=2),
    "report": may_change(report=True),
    "test_split": may_change("folder", test_split=""),
    "data_cache": may_change(data_cache="cache"),
    "strategy": may_change(strategy="one_device"),  # the number of devices may not
    "jit_compile": may_change(jit_compile=True),
    "device_flops": may_change(device_flops=1e12),
}
# The first names the run; the second only fetches what is missing.
NOT_OF_A_RUN = {"model_dir", "download"}


def test_every_flag_of_train_is_classified():
    known, headings = set(flags.FLAGS), dict(GROUPS)
    command.define_flags()
    defined = set(flags.FLAGS) - known
    for name in defined:
        delattr(flags.FLAGS, name)
    GROUPS.clear()
    GROUPS.update(headings)
    assert defined == CASES.keys() | NOT_OF_A_RUN


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The flags of a run on text files, of one on a TFDS folder, and of a parser; all began."""
    folder = tmp_path_factory.mktemp("runs")
    write_data(folder)
    model = {**TINY_MODEL, **FEW_STEPS, "bidirectional_steps": 0, "parallel_parts": 1}
    model |= {"report": False, "max_length": 200}
    found = {
        "text": {**TEXT, **model},
        "folder": {"tfds": "data", "source_lang": "en", "target_lang": "de", **model},
        "parser": {
            **PARSER,
            **model,
            **{"preset": "parsing-small", "target_vocab_size": 40, "vocab_size": 60},
            **{"linearization": "brackets", "extra_source": "extra.mrg", "extra_weight": 2.0},
            **{"substituted": 2, "substituted_share": 0.5},
        },
    }
    found["parser"].pop("bidirectional_steps")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("keras_transformer.training.train", begin)
        for name, given in found.items():
            given["model_dir"] = name
            run("train", **given)
        yield found


def write_data(folder):
    for name, split, count in (("train", "train", 200), ("valid", "validation", 20)):
        english, german = zip(*builtin_pairs(split, count), strict=True)
        german = [f"{line} ..." for line in german]
        backwards = {"en": english[::-1], "de": german[::-1]}
        for language, lines in (("en", english), ("de", german), ("fr", german[::-1])):
            write(folder / f"{name}.{language}", lines)
            split = {"train": "train", "valid": "validation"}[name]
            write(folder / "data" / f"{language}.{split}.txt", lines)
            write(folder / "data" / f"{language}.test.txt", lines[:3])
            write(folder / "other_data" / f"{language}.{split}.txt", lines[1:])
            write(folder / "other_data" / f"{language}.test.txt", lines[:3])
        other = "other" if name == "train" else "other_valid"
        for language, lines in backwards.items():
            write(folder / f"{other}.{language}", lines)
    # The same subwords, since SentencePiece reads the one character as three dots.
    write(folder / "typographic.de", [line.replace("...", "…") for line in german])
    trees = [
        "(TOP (S (NP (NNS Dogs)) (VP (VBP bark))))",
        "(TOP (S (NP (NNS Cats)) (VP (VBP eat))))",
    ]
    write(folder / "train.mrg", 20 * trees)
    write(folder / "extra.mrg", trees[:1])
    write(folder / "valid.mrg", trees[1:])
    write(folder / "other.symbols", ["%s", "<0>"])
    SubwordTokenizer.train_from_sentences(english, 320).save(folder / "other.model")


def write(path, lines):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


def resumed_with(runs, case):
    flags_ = {**runs[case.run], **case.changed}
    return {name: value for name, value in flags_.items() if value is not None}


@pytest.mark.slow
@pytest.mark.parametrize("flag", [flag for flag, case in CASES.items() if case.message])
def test_another_value_is_refused_in_a_line_that_says_how_to_go_on(flag, runs):
    message = refused("train", **resumed_with(runs, CASES[flag]))
    assert re.search(CASES[flag].message, message)
    assert re.search("to resume|resume it|resume the run|are for", message)


@pytest.fixture
def record_of(runs, monkeypatch):
    """The record of a run that is resumed as a case says."""

    def record(case):
        accepted = []

        def check(job, strategy):
            with contextlib.ExitStack() as until_checked:
                accepted.append(prepare(job, strategy, until_checked))

        monkeypatch.setattr("keras_transformer.training.train", check)
        monkeypatch.setattr("keras_transformer.report.write_report", lambda _: "")
        run("train", **resumed_with(runs, case))
        [prepared] = accepted
        return prepared.record

    return record


@pytest.mark.slow
@pytest.mark.parametrize("flag", [flag for flag, case in CASES.items() if not case.message])
def test_another_value_is_accepted(flag, record_of):
    value = CASES[flag].changed[flag]
    assert record_of(CASES[flag])["options"].get(flag, value) == value


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "language"),
    [
        (Case("text", {"source_lang": "en"}), "en"),
        (Case("text", {}), None),
        (Case("folder", {}), "en"),
    ],
)
def test_the_source_language_is_recorded(case, language, record_of):
    assert record_of(case)["source_lang"] == language
