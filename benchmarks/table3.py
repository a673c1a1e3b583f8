"""Trains rows of the paper's Table 3, and prints the published figures beside ours.

  python benchmarks/table3.py --train_source=train.en --train_target=train.de \\
      --valid_source=val.en --valid_target=val.de --output=runs/table3 \\
      --width_scale=0.25 --vocab_size=4000 --steps=1000 --warmup_steps=400
  python benchmarks/table3.py --rows=base,A-h1 --seeds=1,2,3 ...

Each row trains in its own process, once for each seed, in the folder `--output`/ROW-SEED; its
figures are a line of `--output`/results.jsonl. Run the same command again to resume: finished rows
are kept, and an unfinished row resumes from its last checkpoint. `--width_scale` multiplies
d_model, d_ff, d_k and d_v of every row. A training flag applies to all rows; all other options are
as in the paper. With `--stop_patience`, each row trains until the validation set shows no more
improvement (`--best_by=loss`: of the loss).

The table, the conclusions and the plot, `--output`/table3.png, are of all rows and seeds in
results.jsonl, also of earlier commands. With several seeds of a row, a conclusion that the seeds
alone may account for is "chance", neither "holds" nor "fails".
"""

import dataclasses
import itertools
import json
import math
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from absl import flags
from matplotlib.figure import Figure

from keras_transformer.cli.command import Command
from keras_transformer.cli.flags import define_record_flags, given_fields
from keras_transformer.cli.main import run
from keras_transformer.config import TransformerConfig
from keras_transformer.data import Batches, Corpus, TextPairs
from keras_transformer.errors import UserError
from keras_transformer.evaluation import ReferenceLoss, translation_scores
from keras_transformer.files import whole_file
from keras_transformer.presets import PRESETS
from keras_transformer.text.text_files import read_lines
from keras_transformer.training import ModelDir, TrainingJob, TrainingOptions, train
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
SURE = 2.0  # standard errors; differences by chance alone exceed them about one time in twenty

WIDTHS = ("d_model", "d_ff", "d_k", "d_v")
FILES = ("train_source", "train_target", "valid_source", "valid_target")

flags.DEFINE_list("rows", list(PUBLISHED), "rows to train; default: all")
flags.DEFINE_list("seeds", ["1"], "seeds of each row's trainings")
for name in FILES:
    flags.DEFINE_string(name, None, f"text file of the {name.replace('_', ' ')}", required=True)
flags.DEFINE_string("output", "runs/table3", "folder of models, results.jsonl and table3.png")
flags.DEFINE_float("width_scale", 1.0, "factor for every width", lower_bound=0.0)
flags.DEFINE_integer("vocab_size", 37_000, "vocabulary size of every row")
flags.DEFINE_bool("pre_norm", False, "normalise before each sub-layer, in every row")
flags.DEFINE_bool("train_one", False, "used by this script: train the one row in this process")
define_record_flags(TrainingOptions, leave_out={"seed"}, or_else=", or the row's")
FLAGS = flags.FLAGS


def main():
    for name in ("rows", "seeds"):
        if not FLAGS[name].value:
            raise UserError(f"expected --{name} to name something, found nothing")
    seeds = [read_seed(text) for text in FLAGS.seeds]
    for row in FLAGS.rows:
        if row not in PUBLISHED:
            raise UserError(f"--rows: expected some of {','.join(PUBLISHED)}, found {row!r}")
        scaled_config(row)  # fails at once rather than after hours
        for seed in seeds:
            training_options(row, seed)
    results = read_results()
    if FLAGS.train_one:
        [row], [seed] = FLAGS.rows, seeds
        return save_results({**results, (row, seed): trained(row, seed)})
    for seed, row in itertools.product(seeds, FLAGS.rows):
        if (row, seed) not in results:
            one = [f"--rows={row}", f"--seeds={seed}", "--train_one"]
            if status := subprocess.run([sys.executable, *sys.argv, *one]).returncode:
                sys.exit(status)
    results = read_results()
    print(f"\n{table(results)}\n\n{conclusions(results)}")
    with whole_file(Path(FLAGS.output) / "table3.png") as partial:
        plot(results).savefig(partial, format="png", dpi=120)


def read_seed(text):
    try:
        return int(text)
    except ValueError:
        raise UserError(f"--seeds: expected numbers such as 1,2,3, found {text!r}") from None


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


def training_options(row, seed):
    given = {**PRESETS[row].training, **given_fields(TrainingOptions), "seed": seed}
    return TrainingOptions(**given)


def settings(row, seed):
    """The settings that determine a row's figures."""
    data = {name: FLAGS[name].value for name in FILES}
    return {
        **data,
        "config": scaled_config(row).to_dict(),
        "training": dataclasses.asdict(training_options(row, seed)),
    }


def trained(row, seed):
    """Trains a row or resumes it; returns validation figures with the paper's search."""
    began = time.monotonic()
    name, options = f"{row}-{seed}", training_options(row, seed)
    model_dir = ModelDir(Path(FLAGS.output) / name)
    valid_pairs = TextPairs(FLAGS.valid_source, FLAGS.valid_target)
    valid_pairs.check()
    print(f"\n{name}")
    train_pairs = TextPairs(FLAGS.train_source, FLAGS.train_target)
    job = TrainingJob(
        model_dir=model_dir.path,
        train=train_pairs,
        valid=valid_pairs if options.stop_patience else None,
        config=scaled_config(row),
        options=options,
    )
    model = train(job)
    tokenizer = model_dir.load_tokenizer()
    corpus = Corpus.build(valid_pairs, tokenizer, options.max_length)
    batches = Batches(corpus, options.tokens_per_batch, shuffle=False).epoch()
    translator = Translator(model, tokenizer, alpha=0.6, length_penalty="gnmt", patience=None)
    translations = translator(list(read_lines(FLAGS.valid_source)))
    references = list(read_lines(FLAGS.valid_target))
    result = {
        "perplexity": ReferenceLoss(model, batches)()["perplexity"],
        "bleu": translation_scores(translations, references)["bleu"].value,
        "parameters": model.count_params() / 1e6,
        "seconds": time.monotonic() - began,  # of this process, so not all if it resumed
        "settings": settings(row, seed),
    }
    print(f"{name}: perplexity {result['perplexity']:.2f}, BLEU {result['bleu']:.2f}")
    return result


def results_file():
    return Path(FLAGS.output) / "results.jsonl"


def read_results():
    """The figures of each finished row and seed; refuses those with other settings."""
    if not results_file().exists():
        return {}
    results = {}
    for number, line in enumerate(read_lines(results_file()), 1):
        where = f"{results_file()}:{number}"
        try:
            result = json.loads(line)
            row, seed, before = result.pop("row"), result.pop("seed"), result["settings"]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(f"{where}: expected a line that this script wrote") from None
        now = settings(row, seed)
        for old, new in ((before, now), *((before[k], now[k]) for k in ("config", "training"))):
            for name in new:
                if not isinstance(new[name], dict) and old.get(name) != new[name]:
                    raise UserError(
                        f"{where}: {row} was trained with {name}={old.get(name)}, now {new[name]}; "
                        "expected another --output"
                    )
        results[row, seed] = result
    return results


def save_results(results):
    lines = [json.dumps({"row": row, "seed": s, **result}) for (row, s), result in results.items()]
    with whole_file(results_file()) as partial:
        partial.write_text("".join(f"{line}\n" for line in lines))


def by_row(results, name):
    """A figure of all seeds of each row, as {row: [values]}, in the order of the paper's table."""
    found = {row: [r[name] for (of, _), r in results.items() if of == row] for row in PUBLISHED}
    return {row: values for row, values in found.items() if values}


def losses_of(results):
    """Losses, logarithms of perplexities: between seeds, those of all rows vary alike."""
    return {row: [*map(math.log, of)] for row, of in by_row(results, "perplexity").items()}


def table(results):
    """Published figures on newstest2013 beside ours on the validation set, means over seeds."""
    perplexities, bleus = by_row(results, "perplexity"), by_row(results, "bleu")
    parameters = by_row(results, "parameters")
    lines = [
        f"{'':10}  {'the paper':^21}  {'ours':^41}",
        f"{'row':10}  {'PPL':>5}  {'BLEU':>5}  {'10^6':>5}   "
        f"{'PPL':>14}  {'BLEU':>13}  {'10^6':>7}  {'seeds':>5}",
    ]
    for name, row in PUBLISHED.items():
        published = f"{row.perplexity:5.2f}  {row.bleu:5.1f}  {row.parameters or '':>5}"
        if name in perplexities:
            figures = (
                f"{mean_and_spread(perplexities[name]):>14}  {mean_and_spread(bleus[name]):>13}  "
                f"{parameters[name][0]:7.3f}  {len(bleus[name]):>5}"
            )
        else:
            figures = f"{'-':>14}  {'-':>13}  {'-':>7}  {'-':>5}"
        lines.append(f"{name:10}  {published}   {figures}")
    return "\n".join(lines)


def mean_and_spread(values):
    """The mean, with the standard deviation if there are several values."""
    spread = f" ±{statistics.stdev(values):5.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread}"


def conclusions(results):
    """The paper's conclusions, whether our perplexities confirm them, and BLEU."""
    losses = losses_of(results)
    spread = spread_of_seeds(losses)

    def in_order(rows):
        signs = {sign(losses[low], losses[high], spread) for low, high in itertools.pairwise(rows)}
        return "fails" if -1 in signs else "holds" if signs == {1} else "chance"

    def equal(rows):
        first, second = (losses[row] for row in rows)
        nearly = abs(math.expm1(statistics.mean(second) - statistics.mean(first))) <= NEARLY
        return "holds" if nearly else "fails" if sign(first, second, spread) else "chance"

    lines = [conclusion(text, rows, results, in_order) for text, rows in CONCLUSIONS.items()]
    text = f"learned positions equal sinusoids, within {NEARLY:.0%}"
    lines.append(conclusion(text, EQUAL, results, equal))
    if not spread:
        lines.append("One seed of each row: what chance accounts for is not known")
    return "\n".join(lines)


def spread_of_seeds(losses):
    """The standard deviation of a row's loss between seeds, from all rows that have several."""
    freedom = sum(len(of_row) - 1 for of_row in losses.values())
    squares = sum(len(of_row) * statistics.pvariance(of_row) for of_row in losses.values())
    return math.sqrt(squares / freedom) if freedom else 0.0


def sign(low, high, spread):
    """1 if the second row's loss is higher, -1 if it is lower, 0 if that may be by chance."""
    difference = statistics.mean(high) - statistics.mean(low)
    chance = SURE * spread * math.sqrt(1 / len(low) + 1 / len(high))
    return (difference > chance) - (difference < -chance)


def conclusion(text, rows, results, verdict):
    perplexities, bleus = by_row(results, "perplexity"), by_row(results, "bleu")
    if missing := [row for row in rows if row not in perplexities]:
        return f"{'-':6}  {text}: {', '.join(missing)} not trained"
    figures = ", ".join(
        f"{row} {statistics.mean(perplexities[row]):.2f} ({statistics.mean(bleus[row]):.1f})"
        for row in rows
    )
    return f"{verdict(rows):6}  {text}: {figures}"


def plot(results):
    """Each row's loss less that of base: the paper's, each seed of ours, and our mean."""
    losses = losses_of(results)
    rows = list(losses)
    base = statistics.mean(losses[rows[0]])  # of another row if base is not trained
    figure = Figure(figsize=(7, 1.2 + 0.3 * len(rows)), layout="constrained")
    axes = figure.subplots()
    published = [
        math.log(PUBLISHED[row].perplexity / PUBLISHED[rows[0]].perplexity) for row in rows
    ]
    ours = [statistics.mean(losses[row]) - base for row in rows]
    seeds = [(loss - base, y) for y, row in enumerate(rows) for loss in losses[row]]
    axes.axvline(0, color="0.8", zorder=0)
    axes.plot(*zip(*seeds, strict=True), ".", color="C0", alpha=0.5, label="ours, each seed")
    axes.plot(ours, range(len(rows)), "|", color="C0", markersize=14, label="ours, mean")
    axes.plot(published, range(len(rows)), "D", color="C1", fillstyle="none", label="the paper")
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.5, -0.5)  # the first row on top
    axes.set_xlabel(f"loss less that of {rows[0]}, in nats a token")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    return figure


if __name__ == "__main__":
    run(Command(main, __doc__), "table3.py", sys.argv[1:])
