"""Times whole commands, each in a new process and with default flags, as a user meets them.

  python benchmarks/cold.py --model_dir=runs/en-de --source=test.en
  python benchmarks/cold.py --model_dir=runs/en-de --source=test.en --hf_python=hf/bin/python

The commands take turns: `translate` of all lines and of the first one; the same with
`--engine=tensorflow`; and a script of ten lines by which a user calls CTranslate2 with the same
model. With --hf_python, a Python that has `torch` and `transformers`, a script for Hugging Face
runs too: a Marian model of the same shape with random weights, which writes as many tokens for each
line as the average translation has. The output is every time in seconds, and the ratios of the
median times to that of CTranslate2's script.
"""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from absl import app, flags

flags.DEFINE_string("model_dir", None, "folder of a trained model", required=True)
flags.DEFINE_string("source", None, "file of sentences", required=True)
flags.DEFINE_integer("rounds", 3, "number of runs of each command")
flags.DEFINE_list("only", [], "names of the commands to run; default: all")
flags.DEFINE_string("hf_python", None, "Python with torch and transformers")
FLAGS = flags.FLAGS

CTRANSLATE2 = """
import sys, ctranslate2, sentencepiece
folder = sys.argv[1]
translator = ctranslate2.Translator(folder, inter_threads=2, intra_threads=1)
pieces = sentencepiece.SentencePieceProcessor(model_file=folder + "/sentencepiece.model")
lines = [line.rstrip("\\n") for line in sys.stdin]
results = translator.translate_batch(
    pieces.encode(lines, out_type=str), beam_size=4, max_batch_size=64
)
for result in results:
    print(pieces.decode(result.hypotheses[0]))
"""
HUGGING_FACE = """
import json, sys, sentencepiece, torch, transformers
folder, shape = sys.argv[1], json.loads(sys.argv[2])
length = shape.pop("length")
model = transformers.MarianMTModel(transformers.MarianConfig(**shape)).eval()
pieces = sentencepiece.SentencePieceProcessor(model_file=folder + "/sentencepiece.model")
ids = [pieces.encode(line.rstrip("\\n")) + [2] for line in sys.stdin]
order = sorted(range(len(ids)), key=lambda row: -len(ids[row]))
texts = [""] * len(ids)
for start in range(0, len(ids), 64):
    rows = order[start : start + 64]
    batch = torch.nn.utils.rnn.pad_sequence([torch.tensor(ids[row]) for row in rows], True, 0)
    with torch.inference_mode():
        found = model.generate(
            batch, attention_mask=(batch != 0).long(), num_beams=4,
            min_new_tokens=length, max_new_tokens=length,
        )
    for row, tokens in zip(rows, found.tolist()):
        texts[row] = pieces.decode(tokens)
print("\\n".join(texts))
"""


def main(_):
    lines = Path(FLAGS.source).read_text(encoding="utf-8").splitlines(keepends=True)
    with tempfile.TemporaryDirectory() as folder:
        exported = export(folder)
        commands = commands_for(exported)
        first = {"first": lines[:1], "all": lines}
        length = None
        seconds = {}
        for number in range(FLAGS.rounds):
            for name, command in commands.items():
                if FLAGS.only and name not in FLAGS.only:
                    continue
                for which, given in first.items():
                    if "HF" in command:
                        command = hugging_face(exported, length)
                    took, output = run(command, "".join(given))
                    seconds.setdefault((name, which), []).append(took)
                    if which == "all" and name == "translate":
                        length = tokens_per_line(exported, output)
                    print(
                        f"round {number + 1}  {name:24} {len(given):5} lines {took:7.2f} s",
                        flush=True,
                    )
    for which in first:
        base = seconds.get(("CTranslate2's script", which))
        for (name, other), values in seconds.items():
            if other == which:
                middle = statistics.median(values)
                ratio = (
                    f"  {middle / statistics.median(base):6.2f} times the script" if base else ""
                )
                print(f"{which:6} {name:24} {middle:7.2f} s{ratio}")


def commands_for(exported):
    """The commands by their names."""
    ours = [
        sys.executable,
        "-m",
        "keras_transformer",
        "translate",
        f"--model_dir={FLAGS.model_dir}",
    ]
    commands = {
        "translate": ours,
        "CTranslate2's script": [sys.executable, "-c", CTRANSLATE2, exported],
        "--engine=tensorflow": [*ours, "--engine=tensorflow"],
        "--jit_compile": [*ours, "--jit_compile"],
    }
    if FLAGS.hf_python:
        commands["Hugging Face's script"] = ["HF"]
    return commands


def export(folder):
    """Writes the model for CTranslate2's script."""
    from keras_transformer.ctranslate2.converted import ConvertedModel

    with contextlib.redirect_stdout(sys.stderr):
        model = ConvertedModel(FLAGS.model_dir)
        model.load(1)
    return str(model.path)


def hugging_face(exported, length):
    """The command for a model of the same shape."""
    config = json.loads((Path(FLAGS.model_dir) / "config.json").read_text())
    shape = {
        "vocab_size": config["vocab_size"],
        "d_model": config["d_model"],
        "encoder_layers": config["num_encoder_layers"],
        "decoder_layers": config["num_decoder_layers"],
        "encoder_attention_heads": config["num_heads"],
        "decoder_attention_heads": config["num_heads"],
        "encoder_ffn_dim": config["d_ff"],
        "decoder_ffn_dim": config["d_ff"],
        "activation_function": "relu",
        "pad_token_id": 0,
        "decoder_start_token_id": 1,
        "eos_token_id": 2,
        "forced_eos_token_id": None,
        "length": length or 15,
    }
    return [FLAGS.hf_python, "-c", HUGGING_FACE, exported, json.dumps(shape)]


def tokens_per_line(exported, output):
    """The number of tokens of the average translation, with its end symbol."""
    import sentencepiece

    pieces = sentencepiece.SentencePieceProcessor(model_file=f"{exported}/sentencepiece.model")
    lengths = [len(ids) + 1 for ids in pieces.encode(output.splitlines())]
    return round(statistics.mean(lengths))


def run(command, text):
    """The seconds that a command takes, and its output."""
    start = time.perf_counter()
    process = subprocess.run(
        command,
        input=text,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
    )
    if process.returncode:
        raise SystemExit(f"{command[:6]}: {process.stderr[-2000:]}")
    return time.perf_counter() - start, process.stdout


if __name__ == "__main__":
    app.run(main)
