"""Draws what a trained model attends to, as the paper's figures 3 to 5, and as a page to explore.

  python visualize.py --model_dir=runs/en-de --source="A man rides a horse." --output=figures
  python visualize.py --model_dir=runs/en-de --source="Two dogs." --target="Zwei Hunde." \\
      --kind=lines --attention=memory --layer=3 --heads=1,2 --word=Hunde --output=figures
  python visualize.py --preset=base --kind=positions,schedule --output=figures

Without --target the model translates. Layers and heads are numbered from 1. A word that the
vocabulary splits has its parts marked: rid ·ing.
"""

import re
import warnings
from pathlib import Path

from absl import flags

import quiet_tensorflow  # first: it silences what the others import
from keras_transformer.analysis.attention_figures import grid_figure, heat_figure, line_figure
from keras_transformer.analysis.attention_page import attention_page
from keras_transformer.analysis.pair_attention import pair_attention
from keras_transformer.analysis.paper_figures import positions_figure, schedule_figure
from keras_transformer.command_line import run
from keras_transformer.config import TransformerConfig
from keras_transformer.errors import UserError
from keras_transformer.files import whole_file
from keras_transformer.model import Transformer
from keras_transformer.presets import PRESETS
from keras_transformer.training import ModelDir, TrainingOptions
from keras_transformer.translator import Translator

ATTENTIONS = ("encoder", "decoder", "memory")
OF_ATTENTION = ("lines", "heatmap", "grid", "html")
OF_A_RECIPE = ("positions", "schedule")
# Which kinds of picture a flag is for.
FLAG_KINDS = {
    "word": ("lines",),
    "layer": ("lines", "heatmap"),
    "heads": ("lines", "heatmap"),
    "attention": ("lines", "heatmap", "grid"),
    "format": ("lines", "heatmap", "grid", *OF_A_RECIPE),
    "source": OF_ATTENTION,
    "target": OF_ATTENTION,
    "average": (*OF_ATTENTION, "positions"),
}
DPI = 150

flags.DEFINE_string("model_dir", None, "folder of the trained model")
flags.DEFINE_string("preset", None, f"one of {', '.join(PRESETS)}, for {' and '.join(OF_A_RECIPE)}")
flags.DEFINE_integer("average", None, "last checkpoints to average; default: as trained")
flags.DEFINE_string("source", None, "the sentence that the model reads")
flags.DEFINE_string("target", None, "the translation that it writes; default: its own")
flags.DEFINE_string("output", None, "folder to write to", required=True)
flags.DEFINE_list(
    "kind",
    None,
    "lines: the paper's drawing; heatmap: of one layer; grid: of all heads; html: a page to "
    "explore; positions: the positional encoding; schedule: the learning rate; "
    f"default: {','.join(OF_ATTENTION)}, of a preset {','.join(OF_A_RECIPE)}",
)
flags.DEFINE_list(
    "attention",
    list(ATTENTIONS),
    "encoder and decoder: self-attention; memory: of the decoder to the encoder",
)
flags.DEFINE_integer("layer", None, "layer to draw; default: the last but one, as in the paper")
flags.DEFINE_list("heads", None, "heads to draw; default: all")
flags.DEFINE_string("word", None, "the word to draw lines from; default: all")
flags.DEFINE_enum("format", "png", ["png", "svg"], "of the pictures")
flags.DEFINE_bool("overwrite", False, "write over pictures of an earlier call")
FLAGS = flags.FLAGS


def main():
    quiet_tensorflow.find_devices()
    kinds = chosen_kinds()
    model, options, translator = what_to_draw(kinds)
    names = file_names(kinds)
    check_output(names.values())
    figures = {}
    if translator:
        target = FLAGS.target if FLAGS.target is not None else translator([FLAGS.source])[0]
        print(f"source  {FLAGS.source}\ntarget  {target}")
        maps = pair_attention(model, translator.tokenizer, FLAGS.source, target)
        for name in FLAGS.attention:
            if name not in maps:
                raise UserError(
                    f"--attention={name}: expected a model with self-attention, found layer_type="
                    f"{model.config.layer_type}; --attention=memory is there"
                )
        figures = {
            (kind, name): drawn(kind, maps[name])
            for kind in kinds
            for name in FLAGS.attention
            if (kind, name) in names
        }
        if "html" in kinds:
            figures["html"] = attention_page(maps)
    if "positions" in kinds:
        figures["positions"] = positions_figure(model.source_positions)
    if "schedule" in kinds:
        name = FLAGS.preset or Path(FLAGS.model_dir).name
        figures["schedule"] = schedule_figure(
            {name: options.schedule(model.config.d_model)}, options.steps
        )
    Path(FLAGS.output).mkdir(parents=True, exist_ok=True)
    for key, path in names.items():
        save(figures[key], path)
        print(path)


def chosen_kinds():
    """What is to be drawn; refuses flags that would be ignored."""
    if (FLAGS.model_dir is None) == (FLAGS.preset is None):
        raise UserError("expected either --model_dir or, for positions and schedule, --preset")
    possible = (*OF_ATTENTION, *OF_A_RECIPE) if FLAGS.model_dir else OF_A_RECIPE
    default = OF_ATTENTION if FLAGS.model_dir else OF_A_RECIPE
    kinds = default if FLAGS.kind is None else FLAGS.kind
    expect_each("kind", kinds, possible)
    expect_each("attention", FLAGS.attention, ATTENTIONS)
    for name, its_kinds in FLAG_KINDS.items():
        if FLAGS[name].present and not set(its_kinds) & set(kinds):
            raise UserError(f"expected no --{name}, found with --kind={','.join(kinds)}")
    if set(OF_ATTENTION) & set(kinds) and FLAGS.source is None:
        raise UserError("expected --source, the sentence that the model reads")
    return kinds


def expect_each(name, values, possible):
    for value in values:
        if value not in possible:
            raise UserError(f"--{name}: expected some of {','.join(possible)}, found {value!r}")
    if not values:
        raise UserError(f"--{name}: expected some of {','.join(possible)}, found none")


def what_to_draw(kinds):
    """The model, the options of its training, and for attention a translator."""
    if FLAGS.preset is not None:
        model = Transformer(TransformerConfig.from_preset(FLAGS.preset))
        return model, TrainingOptions(**PRESETS[FLAGS.preset].training), None
    model_dir = ModelDir(FLAGS.model_dir)
    model = model_dir.load_model(FLAGS.average)
    options = TrainingOptions(**model_dir.load_training()["options"])
    is_of_attention = set(OF_ATTENTION) & set(kinds)
    translator = Translator(model, model_dir.load_tokenizer()) if is_of_attention else None
    return model, options, translator


def file_names(kinds):
    """The file of each picture: by its kind, and of attention also by which."""
    folder, names = Path(FLAGS.output), {}
    for kind in kinds:
        if kind == "html":
            names[kind] = folder / "attention.html"
        elif kind in OF_A_RECIPE:
            names[kind] = folder / f"{kind}.{FLAGS.format}"
        else:
            for name in FLAGS.attention:
                names[kind, name] = folder / f"{name}-{kind}.{FLAGS.format}"
    return names


def check_output(paths):
    for path in paths:
        if path.exists() and not FLAGS.overwrite:
            raise UserError(f"{path}: expected no file, found one; --overwrite replaces it")


def drawn(kind, attention):
    if kind == "grid":
        return grid_figure(attention)
    layers, num_heads = attention.weights.shape[:2]
    default = max(1, layers - 1)
    layer = number("layer", default if FLAGS.layer is None else FLAGS.layer, layers, attention)
    heads = range(1, num_heads + 1) if FLAGS.heads is None else FLAGS.heads or [""]
    heads = [number("heads", head, num_heads, attention) for head in heads]
    if kind == "heatmap":
        return heat_figure(attention, layer, heads)
    words = None if FLAGS.word is None else attention.find(FLAGS.word)
    return line_figure(attention, layer, heads, words)


def number(name, value, largest, attention):
    """The index of a layer or head that is numbered from 1."""
    if not (str(value).isdecimal() and 1 <= int(value) <= largest):
        raise UserError(f"--{name}: expected 1 to {largest} of {attention.title}, found {value}")
    return int(value) - 1


def save(figure, path):
    with whole_file(path) as partial, warnings.catch_warnings(record=True) as caught:
        if isinstance(figure, str):
            partial.write_text(figure, encoding="utf-8")
        else:
            figure.savefig(partial, format=FLAGS.format, dpi=DPI)
    missing = {int(found[1]) for w in caught if (found := re.match(r"Glyph (\d+)", str(w.message)))}
    if missing:
        print(f"  (matplotlib has no font for {' '.join(map(chr, sorted(missing)))})")


if __name__ == "__main__":
    run(main)
