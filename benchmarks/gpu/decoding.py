"""Times our beam search beside the `generate` of Transformers, with the same weights.

  python benchmarks/gpu/decoding.py --size=base

Transformers writes a Marian model with random weights, which `import_marian` reads. Both translate
random sentences of 24 tokens into 32 each, with a beam of 4. Each contestant has a process of its
own. Prints target tokens per second, and the share of sentences with the translation of
Transformers in float32.
"""

import argparse
import io
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

SIZES = {  # width, inner width, heads, layers
    "tiny": (128, 256, 4, 4),
    "base": (512, 2048, 8, 6),
    "big": (1024, 4096, 16, 6),
}
VOCABULARY, END, BEAM_SIZE, SOURCE_LENGTH, TARGET_LENGTH = 32_000, 0, 4, 24, 32


def write(options):
    """Writes the model as Transformers does, with a vocabulary of made-up words."""
    import sentencepiece
    import torch
    from transformers import MarianConfig, MarianMTModel

    width, inner, heads, layers = SIZES[options.size]
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (("layers", layers), ("attention_heads", heads), ("ffn_dim", inner))
    }
    config = MarianConfig(
        vocab_size=VOCABULARY,
        d_model=width,
        activation_function="relu",
        scale_embedding=True,
        static_position_embeddings=True,
        pad_token_id=VOCABULARY - 1,
        decoder_start_token_id=VOCABULARY - 1,
        eos_token_id=END,
        forced_eos_token_id=None,
        init_std=width**-0.5,
        **sides,
    )
    torch.manual_seed(1)
    folder = Path(options.folder)
    MarianMTModel(config).save_pretrained(folder)
    spelling = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a man rides a horse"] * 20),
        model_writer=spelling,
        vocab_size=30,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(spelling.getvalue())
    words = ["</s>", "<unk>", *(f"w{i}" for i in range(2, VOCABULARY - 1)), "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}))


def sources(options):
    ids = np.random.default_rng(1).integers(2, VOCABULARY - 1, (options.sentences, SOURCE_LENGTH))
    return np.pad(ids, [(0, 0), (0, 1)], constant_values=END)


def timed(translate, options):
    """Translates all sentences until the time is over; `translate` is called with a batch."""
    ids = sources(options)
    batches = [ids[i : i + options.batch] for i in range(0, len(ids), options.batch)]
    translate(batches[0])
    found, start = [], time.perf_counter()
    while time.perf_counter() - start < options.seconds or len(found) < len(batches):
        batch = batches[len(found) % len(batches)]
        found.append(translate(batch).tolist())
    seconds = time.perf_counter() - start
    rows = sum(len(batch) for batch in found)
    first = [row for batch in found[: len(batches)] for row in batch]
    return {"tokens/s": rows * TARGET_LENGTH / seconds, "ids": first}


def theirs(options):
    import torch
    from transformers import MarianMTModel

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = MarianMTModel.from_pretrained(options.folder).to(device).eval()
    if options.precision == "bfloat16":
        model = model.to(torch.bfloat16)

    @torch.inference_mode()
    def translate(ids):
        ids = torch.tensor(ids, device=device)
        found = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            num_beams=BEAM_SIZE,
            min_new_tokens=TARGET_LENGTH,
            max_new_tokens=TARGET_LENGTH,
            do_sample=False,
        )
        return found[:, 1:].cpu().numpy()

    return timed(translate, options)


def ours(options):
    import tensorflow as tf

    from keras_transformer.importers.marian import import_marian
    from keras_transformer.precision import in_precision
    from keras_transformer.search import SearchOptions, search

    if not options.tf32:
        tf.config.experimental.enable_tensor_float_32_execution(False)
    model, _ = import_marian(options.folder)
    model = in_precision(model, options.precision)
    # The last of our tokens is the end symbol: a limit of 32 is 31 words.
    limits = SearchOptions(
        beam_size=BEAM_SIZE, min_length=TARGET_LENGTH + 1, max_length=TARGET_LENGTH + 1
    )
    run = tf.function(
        lambda ids: search(model, ids, limits).ids[:, 0, :TARGET_LENGTH],
        jit_compile=options.jit_compile,
        autograph=False,
    )
    return timed(lambda ids: run(tf.constant(ids, tf.int32)).numpy(), options)


def in_a_process(options, contestant, **settings):
    given = {**vars(options), "contestant": contestant, **settings}
    done = subprocess.run(
        [sys.executable, __file__, f"--settings={json.dumps(given)}"],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        return {"failed": done.stderr.strip()[-500:]}
    return json.loads(done.stdout.splitlines()[-1])


CONTESTANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "Transformers, float32": ("theirs", {"precision": "float32"}),
    "Transformers, bfloat16": ("theirs", {"precision": "bfloat16"}),
    "ours, float32": ("ours", {"precision": "float32", "jit_compile": False}),
    "ours, float32, XLA": ("ours", {"precision": "float32", "jit_compile": True}),
    "ours, bfloat16": ("ours", {"precision": "bfloat16", "jit_compile": False}),
    "ours, bfloat16, XLA": ("ours", {"precision": "bfloat16", "jit_compile": True}),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="base", choices=SIZES)
    parser.add_argument("--batches", default="1,64", help="numbers of sentences in a batch")
    parser.add_argument("--sentences", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=4, help="minimum of a timed window")
    parser.add_argument("--tf32", action="store_true", help="round our float32 products to TF32")
    parser.add_argument("--settings", help="used by this script: a contestant, as JSON")
    options = parser.parse_args()
    if options.settings:
        options = argparse.Namespace(**json.loads(options.settings))
        print(json.dumps(globals()[options.contestant](options)))
        return
    with tempfile.TemporaryDirectory() as folder:
        written = in_a_process(options, "write", folder=folder)
        if written:
            sys.exit(written["failed"])
        for batch in map(int, options.batches.split(",")):
            expected = None
            for name, (contestant, settings) in CONTESTANTS.items():
                found = in_a_process(options, contestant, folder=folder, batch=batch, **settings)
                if "failed" in found:
                    print(f"batches of {batch}: {name} failed: {found['failed']}", flush=True)
                    continue
                expected = expected or found["ids"]
                same = sum(map(list.__eq__, found["ids"], expected)) / len(expected)
                speed = f"{found['tokens/s']:,.0f} target tokens/s"
                print(f"batches of {batch}: {name}: {speed}, {same:.0%} the same", flush=True)


if __name__ == "__main__":
    main()
