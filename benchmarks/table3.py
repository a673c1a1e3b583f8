"""Trains rows of the paper's Table 3, and prints the published figures beside ours.

  python benchmarks/table3.py --train_source=train.en --train_target=train.de \\
      --valid_source=val.en --valid_target=val.de --output=runs/table3 \\
      --width_scale=0.25 --vocab_size=4000 --steps=1000 --warmup_steps=400
  python benchmarks/table3.py --rows=base,A-h1 ...

Each row trains in its own process, in the folder `--output`/ROW; its figures are a line of
`--output`/results.jsonl. Run the same command again to resume: finished rows are kept, and an
unfinished row resumes from its last checkpoint. `--width_scale` multiplies d_model, d_ff, d_k and
d_v of every row. A training flag applies to all rows; all other options are as in the paper.
"""

import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from absl import flags

from keras_transformer.cli.flags import define_record_flags, given_fields
from keras_transformer.cli.main import run
from keras_transformer.config import TransformerConfig
from keras_transformer.data import Batches, Corpus, TextPairs
from keras_transformer.errors import UserError
from keras_transformer.evaluation import ReferenceLoss, translation_scores
from keras_transformer.files import whole_file
from keras_transformer.presets import PRESETS
from keras_transformer.text_files import read_lines
from keras_transformer.training import ModelDir, TrainingOptions, train
from keras_transformer.translator import Translator


class Row(NamedTuple):
    """Perplexity and BLEU on newstest2013, and parameters in millions if the paper gives them."""

    perplexity: float
    bleu: float
    parameters: int | None = None


PUBLISHED = {
    "base": Row(4.92, 25.8, 65),
    "A-h1": Row(5.29, 24.9),
    "A-h4": Row(5.00, 25.5),
    "A-h16": Row(4.91, 25.8),
    "A-h32": Row(5.01, 25.4),
    "B-dk16": Row(5.16, 25.1, 58),
    "B-dk32": Row(5.01, 25.4, 60),
    "C-N2": Row(6.11, 23.7, 36),
    "C-N4": Row(5.19, 25.3, 50),
    "C-N8": Row(4.88, 25.5, 80),
    "C-d256": Row(5.75, 24.5, 28),
    "C-d1024": Row(4.66, 26.0, 168),
    "C-ff1024": Row(5.12, 25.4, 53),
    "C-ff4096": Row(4.75, 26.2, 90),
    "D-drop0.0": Row(5.77, 24.6),
    "D-drop0.2": Row(4.95, 25.5),
    "D-ls0.0": Row(4.67, 25.3),
    "D-ls0.2": Row(5.47, 25.7),
    "E-learned": Row(4.92, 25.7),
    "big": Row(4.33, 26.4, 213),
}

# The paper's conclusions, as rows from the lowest perplexity to the highest.
CONCLUSIONS = {
    "one head is worse than eight": ("base", "A-h1"),
    "so are too many": ("base", "A-h32"),
    "a small d_k hurts": ("base", "B-dk32", "B-dk16"),
    "more layers are better": ("C-N8", "base", "C-N4", "C-N2"),
    "a wider model is better": ("C-d1024", "base", "C-d256"),
    "a wider feed-forward network is better": ("C-ff4096", "base", "C-ff1024"),
    "the big model is better": ("big", "base"),
    "dropout helps": ("base", "D-drop0.0"),
    "label smoothing raises perplexity": ("D-ls0.0", "base", "D-ls0.2"),
}
EQUAL = ("base", "E-learned")
NEARLY = 0.02  # share of the perplexity by which rows may differ and count as equal

WIDTHS = ("d_model", "d_ff", "d_k", "d_v")
FILES = ("train_source", "train_target", "valid_source", "valid_target")

flags.DEFINE_list("rows", list(PUBLISHED), "rows to train; default: all")
for name in FILES:
    flags.DEFINE_string(name, None, f"text file of the {name.replace('_', ' ')}", required=True)
flags.DEFINE_string("output", "runs/table3", "folder of the rows' models and of results.jsonl")
flags.DEFINE_float("width_scale", 1.0, "factor for every width", lower_bound=0.0)
flags.DEFINE_integer("vocab_size", 37_000, "vocabulary size of every row")
flags.DEFINE_bool("pre_norm", False, "normalise before each sub-layer, in every row")
flags.DEFINE_bool("train_one", False, "used by this script: train the one row in this process")
define_record_flags(TrainingOptions, or_else=", or the row's")
FLAGS = flags.FLAGS


def main():
    for row in FLAGS.rows:
        if row not in PUBLISHED:
            raise UserError(f"--rows: expected some of {','.join(PUBLISHED)}, found {row!r}")
        scaled_config(row)  # fails at once rather than after hours
        training_options(row)
    results = read_results()
    if FLAGS.train_one:
        [row] = FLAGS.rows
        return save_results({**results, row: trained(row)})
    for row in FLAGS.rows:
        if row not in results:
            command = [sys.executable, *sys.argv, f"--rows={row}", "--train_one"]
            if status := subprocess.run(command).returncode:
                sys.exit(status)
    results = read_results()
    print(f"\n{table(results)}\n\n{conclusions(results)}")


def scaled_config(row):
    config = TransformerConfig.from_preset(row)
    widths = {name: getattr(config, name) * FLAGS.width_scale for name in WIDTHS}
    for name, width in widths.items():
        if width != int(width):
            raise UserError(f"--width_scale: expected whole widths, found {name}={width} of {row}")
    widths = {name: int(width) for name, width in widths.items()}
    return dataclasses.replace(
        config, vocab_size=FLAGS.vocab_size, pre_norm=FLAGS.pre_norm, **widths
    )


def training_options(row):
    return TrainingOptions(**{**PRESETS[row].training, **given_fields(TrainingOptions)})


def settings(row):
    """The settings that determine a row's figures."""
    data = {name: FLAGS[name].value for name in FILES}
    return {
        **data,
        "config": scaled_config(row).to_dict(),
        "training": dataclasses.asdict(training_options(row)),
    }


def trained(row):
    """Trains a row or resumes it; returns validation figures with beam size 4 and alpha 0.6."""
    began = time.monotonic()
    model_dir, options = ModelDir(Path(FLAGS.output) / row), training_options(row)
    valid_pairs = TextPairs(FLAGS.valid_source, FLAGS.valid_target)
    valid_pairs.check()
    print(f"\n{row}")
    train_pairs = TextPairs(FLAGS.train_source, FLAGS.train_target)
    model = train(model_dir.path, scaled_config(row), options, train_pairs)
    tokenizer = model_dir.load_tokenizer()
    corpus = Corpus.build(valid_pairs, tokenizer, options.max_length)
    batches = Batches(corpus, options.tokens_per_batch, shuffle=False).epoch()
    translations = Translator(model, tokenizer)(list(read_lines(FLAGS.valid_source)))
    references = list(read_lines(FLAGS.valid_target))
    result = {
        "perplexity": ReferenceLoss(model, batches)()["perplexity"],
        "bleu": translation_scores(translations, references)["bleu"].value,
        "parameters": model.count_params() / 1e6,
        "seconds": time.monotonic() - began,  # of this process, so not all if it resumed
        "settings": settings(row),
    }
    print(f"{row}: perplexity {result['perplexity']:.2f}, BLEU {result['bleu']:.2f}")
    return result


def results_file():
    return Path(FLAGS.output) / "results.jsonl"


def read_results():
    """The figures of each finished row; refuses rows with other settings."""
    if not results_file().exists():
        return {}
    results = {}
    for number, line in enumerate(read_lines(results_file()), 1):
        where = f"{results_file()}:{number}"
        try:
            result = json.loads(line)
            row, before = result.pop("row"), result["settings"]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(f"{where}: expected a line that this script wrote") from None
        now = settings(row)
        for old, new in ((before, now), *((before[k], now[k]) for k in ("config", "training"))):
            for name in new:
                if not isinstance(new[name], dict) and old.get(name) != new[name]:
                    raise UserError(
                        f"{where}: {row} was trained with {name}={old.get(name)}, now {new[name]}; "
                        "expected another --output"
                    )
        results[row] = result
    return results


def save_results(results):
    lines = [json.dumps({"row": row, **result}) for row, result in results.items()]
    with whole_file(results_file()) as partial:
        partial.write_text("".join(f"{line}\n" for line in lines))


def table(results):
    """Published figures on newstest2013 beside ours on the validation set."""
    lines = [
        f"{'':10}  {'the paper':^21}  {'ours':^24}",
        f"{'row':10}  {'PPL':>5}  {'BLEU':>5}  {'10^6':>5}   {'PPL':>7}  {'BLEU':>5}  {'10^6':>7}",
    ]
    for name, row in PUBLISHED.items():
        if name in results:
            ours = results[name]
            figures = f"{ours['perplexity']:7.2f}  {ours['bleu']:5.2f}  {ours['parameters']:7.3f}"
        else:
            figures = f"{'-':>7}  {'-':>5}  {'-':>7}"
        parameters = row.parameters or ""
        lines.append(
            f"{name:10}  {row.perplexity:5.2f}  {row.bleu:5.1f}  {parameters:>5}   {figures}"
        )
    return "\n".join(lines)


def conclusions(results):
    """The paper's conclusions, whether our perplexities confirm them, and BLEU."""
    lines = []
    for text, rows in CONCLUSIONS.items():
        lines.append(conclusion(text, rows, results, lambda values: values == sorted(set(values))))
    text = f"learned positions equal sinusoids, within {NEARLY:.0%}"
    lines.append(
        conclusion(text, EQUAL, results, lambda pair: abs(pair[1] / pair[0] - 1) <= NEARLY)
    )
    return "\n".join(lines)


def conclusion(text, rows, results, holds):
    if missing := [row for row in rows if row not in results]:
        return f"{'-':6}  {text}: {', '.join(missing)} not trained"
    perplexities = [results[row]["perplexity"] for row in rows]
    answer = "holds" if holds(perplexities) else "fails"
    figures = ", ".join(
        f"{row} {results[row]['perplexity']:.2f} ({results[row]['bleu']:.1f})" for row in rows
    )
    return f"{answer:6}  {text}: {figures}"


if __name__ == "__main__":
    run(sys.modules[__name__], "table3.py", sys.argv[1:])
