"""Draws the attention of a trained model, as in the paper's figures 3 to 5, and as an HTML page.

  keras-transformer visualize --model_dir=runs/en-de --source="A man rides a horse." \\
      --output=figures
  keras-transformer visualize --model_dir=runs/en-de --source="Two dogs." --target="Zwei Hunde." \\
      --kind=lines --attention=memory --layer=3 --heads=1,2 --word=Hunde --output=figures
  keras-transformer visualize --preset=base --kind=positions,schedule --output=figures

Without --target, the model translates the source. Layers and heads are numbered from 1. Where the
vocabulary splits a word, a dot marks the later parts: rid ·ing.
"""

import re
import warnings
from pathlib import Path

from absl import flags

from keras_transformer import parsing, report, training
from keras_transformer.cli import quiet
from keras_transformer.cli.command import Command
from keras_transformer.cli.flags import (
    FLAGS,
    check_output_folder,
    define_list,
    group,
    present,
    refuse,
)
from keras_transformer.cli.translator_flags import define_weights_flags
from keras_transformer.config import TransformerConfig
from keras_transformer.errors import UserError
from keras_transformer.files import whole_file
from keras_transformer.options import TrainingOptions
from keras_transformer.presets import PRESETS

ATTENTIONS = ("encoder", "decoder", "memory")
OF_ATTENTION = ("lines", "heatmap", "grid", "html")
OF_A_RECIPE = ("positions", "schedule")
# The kinds of picture that each flag applies to.
FLAG_KINDS = {
    "word": ("lines",),
    "layer": ("lines", "heatmap"),
    "heads": ("lines", "heatmap"),
    "attention": ("lines", "heatmap", "grid"),
    "format": ("lines", "heatmap", "grid", *OF_A_RECIPE),
    "source_lang": OF_ATTENTION,
    "target_lang": OF_ATTENTION,
    "source": OF_ATTENTION,
    "target": OF_ATTENTION,
    "weights": (*OF_ATTENTION, "positions"),
    "average": (*OF_ATTENTION, "positions"),
}
DPI = 150


def define_flags() -> None:
    with group("Pictures"):
        flags.DEFINE_string("model_dir", None, "folder of a trained model")
        flags.DEFINE_string(
            "preset",
            None,
            f"preset whose {' and '.join(OF_A_RECIPE)} to draw, instead of --model_dir: "
            f"{', '.join(PRESETS)}",
        )
        define_weights_flags()
        flags.DEFINE_string(
            "source_lang", None, "code of the language of --source, for M2M100 and NLLB"
        )
        flags.DEFINE_string(
            "target_lang", None, "code of the target language, for a model of several languages"
        )
        flags.DEFINE_string("source", None, "source sentence")
        flags.DEFINE_string("target", None, "target sentence; default: the model's translation")
        flags.DEFINE_string("output", None, "folder to write pictures to", required=True)
        define_list(
            "kind",
            None,
            "pictures to draw: lines between words, as in the paper; heatmap of the heads of a "
            "layer; grid of all layers and heads; html, a page to explore; positions, the position "
            "encoding; schedule, the learning rate; "
            f"default: {','.join(OF_ATTENTION)}; with --preset: {','.join(OF_A_RECIPE)}",
        )
        define_list(
            "attention",
            list(ATTENTIONS),
            "attention to draw: encoder and decoder, their self-attention; memory, the "
            "cross-attention of the decoder",
        )
        flags.DEFINE_integer(
            "layer", None, "layer to draw, from 1; default: the last but one, as in the paper"
        )
        define_list("heads", None, "heads to draw, from 1; default: all")
        flags.DEFINE_string("word", None, "word to draw lines from; default: all")
        flags.DEFINE_enum("format", "png", ["png", "svg"], "file format of pictures")
        flags.DEFINE_bool("overwrite", False, "overwrite pictures that exist")


def main():
    # Imported here, not at the top: it needs Keras.
    from keras_transformer.report.attention_page import attention_page
    from keras_transformer.schedules import InverseSquareRootSchedule

    quiet.find_devices()
    kinds = chosen_kinds()
    names = file_names(kinds)
    check_output_folder(FLAGS.output, names.values(), FLAGS.overwrite)
    model, options, translator = what_to_draw(kinds)
    figures = {}
    if translator:
        target = FLAGS.target if FLAGS.target is not None else translator([FLAGS.source])[0]
        if FLAGS.target is None and not target and FLAGS.source.strip():
            raise UserError("the model's translation is empty: give --target")
        print(f"source  {FLAGS.source}\ntarget  {target}")
        maps = report.pair_attention(model, translator.tokenizer, FLAGS.source, target)
        wanted = [
            (kind, name) for kind in kinds for name in FLAGS.attention if (kind, name) in names
        ]
        for _, name in wanted:
            if name not in maps:
                raise UserError(
                    f"--attention={name} needs self-attention, which a model of layer_type="
                    f"{model.config.layer_type} does not have: use --attention=memory"
                )
        figures = {(kind, name): drawn(kind, maps[name]) for kind, name in wanted}
        if "html" in kinds:
            figures["html"] = attention_page(maps)
    if "positions" in kinds:
        if model.source_positions is None:
            raise UserError(
                "--kind=positions draws nothing for a model of positions=rotary: leave it out"
            )
        figures["positions"] = report.positions_figure(model.source_positions)
    if "schedule" in kinds:
        name = FLAGS.preset or training.ModelDir(FLAGS.model_dir).name
        schedule = InverseSquareRootSchedule.from_options(options, model.config.d_model)
        figures["schedule"] = report.schedule_figure({name: schedule}, options.steps)
    Path(FLAGS.output).mkdir(parents=True, exist_ok=True)
    for key, path in names.items():
        save(figures[key], path)


def chosen_kinds():
    """Returns the kinds of figures to draw, and refuses flags that would be ignored."""
    if (FLAGS.model_dir is None) == (FLAGS.preset is None):
        raise UserError("give either --model_dir or, for --kind=positions,schedule, --preset")
    is_of_preset = FLAGS.model_dir is None
    if is_of_preset:
        refuse(present(["weights", "average"]), "with --preset, which has no weights")
    possible = OF_A_RECIPE if is_of_preset else (*OF_ATTENTION, *OF_A_RECIPE)
    default = OF_A_RECIPE if is_of_preset else OF_ATTENTION
    kinds = default if FLAGS.kind is None else FLAGS.kind
    expect_each("kind", kinds, possible)
    expect_each("attention", FLAGS.attention, ATTENTIONS)
    for name, its_kinds in FLAG_KINDS.items():
        if FLAGS[name].present and not set(its_kinds) & set(kinds):
            refuse([name], f"with --kind={','.join(kinds)}")
    if set(OF_ATTENTION) & set(kinds) and FLAGS.source is None:
        raise UserError("--source is required: the sentence that the model reads")
    return kinds


def expect_each(name, values, possible):
    for value in values:
        if value not in possible:
            raise UserError(f"--{name} must be some of {','.join(possible)}: found {value!r}")
    if not values:
        raise UserError(f"--{name} must be some of {','.join(possible)}: found none")


def what_to_draw(kinds):
    """The model, its training options, and for attention a translator."""
    from keras_transformer.model import Transformer

    if FLAGS.preset is not None:
        model = Transformer(TransformerConfig.from_preset(FLAGS.preset))
        return model, TrainingOptions(**PRESETS[FLAGS.preset].training), None
    model_dir = training.ModelDir(FLAGS.model_dir)
    model = model_dir.load_model(FLAGS.average, FLAGS.weights)
    options = TrainingOptions(**model_dir.load_training()["options"])
    is_of_attention = set(OF_ATTENTION) & set(kinds)
    if not is_of_attention:
        return model, options, None
    from keras_transformer.translator import Translator

    tokenizer = model_dir.load_tokenizer()
    defaults = parsing.search_defaults(tokenizer)
    translator = Translator(model, tokenizer, **defaults)
    if FLAGS.source_lang is not None or FLAGS.target_lang is not None:
        translator = translator.with_languages(FLAGS.target_lang, FLAGS.source_lang)
    translator.expect_direction()
    return model, options, translator


def file_names(kinds):
    """The file of each picture, by its kind or, for attention, by kind and attention."""
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


def drawn(kind, attention):
    if kind == "grid":
        return report.grid_figure(attention)
    layers, num_heads = attention.weights.shape[:2]
    default = max(1, layers - 1)
    layer = number("layer", default if FLAGS.layer is None else FLAGS.layer, layers, attention)
    heads = range(1, num_heads + 1) if FLAGS.heads is None else FLAGS.heads or [""]
    heads = [number("heads", head, num_heads, attention) for head in heads]
    if kind == "heatmap":
        return report.heat_figure(attention, layer, heads)
    words = None if FLAGS.word is None else attention.find(FLAGS.word)
    return report.line_figure(attention, layer, heads, words)


def number(name, value, largest, attention):
    """The index of a layer or head that is numbered from 1."""
    if not (str(value).isdecimal() and 1 <= int(value) <= largest):
        numbers = f"from 1 to {largest} in {attention.title}"
        raise UserError(f"--{name} must be {numbers}: found {value}")
    return int(value) - 1


def save(figure, path):
    with whole_file(path) as partial, warnings.catch_warnings(record=True) as caught:
        if isinstance(figure, str):
            partial.write_text(figure, encoding="utf-8")
        else:
            figure.savefig(partial, format=FLAGS.format, dpi=DPI)
    missing = {int(found[1]) for w in caught if (found := re.match(r"Glyph (\d+)", str(w.message)))}
    print(path)
    if missing:
        some = " ".join(map(chr, sorted(missing)))
        print(f"  (no font on this machine has {some}: install one, such as Noto Sans CJK)")


COMMAND = Command(main, __doc__)
