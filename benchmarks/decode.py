"""Times our beam search and CTranslate2's, with the same weights, in one run on one machine.

  python benchmarks/decode.py                      # random base and tiny models, 32 tokens each
  python benchmarks/decode.py --model_dir=runs/en-de --source=test.en     # text in, text out
  python benchmarks/decode.py --engine --model_dir=runs/en-de --source=test.en

The last command compares `translate --engine=ctranslate2` with CTranslate2's own Python loop.
Contestants take turns, each in its own process. The output is the median of the rounds, and the
ratio of our best to CTranslate2's best. CTranslate2 is the version that `make install` installs.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from absl import app, flags

flags.DEFINE_list("sizes", ["base", "tiny"], "names of random models: presets, or compact-6+6")
flags.DEFINE_list("batches", ["32", "1"], "numbers of sentences in a batch")
flags.DEFINE_integer("sentences", 128, "sentences for random models; a multiple of the batch")
flags.DEFINE_integer("rounds", 3, "number of runs of each contestant")
flags.DEFINE_float("seconds", 8, "minimum seconds of each timed window")
flags.DEFINE_list("model_dir", None, "folder of a trained model, for text")
flags.DEFINE_string("source", None, "file of sentences to translate with it")
flags.DEFINE_string("reference", None, "file of their translations, for BLEU")
flags.DEFINE_integer("tokens_per_batch", 1024, "number of tokens in a batch of text")
flags.DEFINE_bool("engine", False, "compare --engine=ctranslate2 with CTranslate2's own loop")
flags.DEFINE_string("only", "", "run only contestants whose name contains this")
flags.DEFINE_string("contestant", None, "used by this script: the one to run, as JSON")
FLAGS = flags.FLAGS

MODELS: dict[str, dict[str, Any]] = {
    "base": {"name": "base", "vocab_size": 32_000},
    # Post-norm, like base, and as measured in docs/performance.md.
    "tiny": {"name": "tiny", "vocab_size": 10_000, "pre_norm": False},
    "compact": {"name": "compact", "vocab_size": 8000},
    "compact-6+6": {"name": "compact", "vocab_size": 8000, "num_decoder_layers": 6},
}
SOURCE_LENGTH, TARGET_LENGTH, BEAM_SIZE = 24, 32, 4
THREADS = 2


def contestants(batch: int):
    """The contestants to time, as names and settings."""
    for precision in ("float32", "bfloat16", "int8"):
        # XLA computes bfloat16 products more slowly than float32 on processors.
        for jit_compile in {"float32": (True, False), "bfloat16": (False,), "int8": (True,)}[
            precision
        ]:
            # As the command shares the cores; for one sentence at a time, one thread is a choice.
            two_workers = (2, 2 if jit_compile else 1)
            for workers, threads in [(1, 2), two_workers] if batch > 1 else [(1, 2), (1, 1)]:
                xla = " XLA" if jit_compile else ""
                name = f"ours {precision}{xla}, workers: {workers}, threads: {threads}"
                yield (
                    name,
                    {
                        "precision": precision,
                        "jit_compile": jit_compile,
                        "workers": workers,
                        "threads": threads,
                    },
                )
    for precision in ("float32", "int8"):
        for workers, threads in [(1, 2), (2, 1)] if batch > 1 else [(1, 2), (1, 1)]:
            name = f"CTranslate2 {precision}, workers: {workers}, threads: {threads}"
            yield name, {"precision": precision, "workers": workers, "threads": threads}


def timed(run, count: int) -> dict:
    """Sentences per second of `run`, which translates `count` sentences, and its memory."""
    run()
    done, start = 0, time.perf_counter()
    while time.perf_counter() - start < FLAGS.seconds:
        run()
        done += count
    seconds = time.perf_counter() - start
    status = Path("/proc/self/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    return {"sentences/s": done / seconds, "MiB": peak}


def random_model(size):
    import keras

    import keras_transformer as kt

    keras.utils.set_random_seed(1)
    return kt.Transformer(kt.TransformerConfig.from_preset(**MODELS[size]))


def random_sources(size):
    vocab_size = MODELS[size]["vocab_size"]
    ids = np.random.default_rng(1).integers(4, vocab_size, (FLAGS.sentences, SOURCE_LENGTH))
    return np.pad(ids, [(0, 0), (0, 1)], constant_values=2).astype("int32")


def ours_on_ids(size, batch, precision, jit_compile, workers, threads):
    import tensorflow as tf

    from keras_transformer.fast.xla_flags import set_xla_flags
    from keras_transformer.precision import in_precision
    from keras_transformer.search import SearchOptions, search

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    set_xla_flags()
    model = in_precision(random_model(size), precision)
    options = SearchOptions(beam_size=BEAM_SIZE, min_length=TARGET_LENGTH, max_length=TARGET_LENGTH)
    ids = random_sources(size)
    compiled = tf.function(
        lambda source_ids: search(model, source_ids, options).ids,
        jit_compile=jit_compile,
        autograph=False,
    )
    batches = [tf.constant(ids[i : i + batch]) for i in range(0, FLAGS.sentences, batch)]
    compiled(batches[0])  # not in the threads that are timed, as in `Translator`
    with ThreadPoolExecutor(workers) as pool:
        return timed(
            lambda: list(pool.map(lambda b: compiled(b).numpy(), batches)), FLAGS.sentences
        )


def ctranslate2_on_ids(size, batch, precision, workers, threads, folder):
    import ctranslate2

    translator = ctranslate2.Translator(
        folder, compute_type=precision, inter_threads=workers, intra_threads=threads
    )
    sources = [[f"t{id_}" for id_ in row[:-1]] for row in random_sources(size)]
    options = {"beam_size": BEAM_SIZE, "max_batch_size": batch, "batch_type": "examples"}
    limits = {"min_decoding_length": TARGET_LENGTH, "max_decoding_length": TARGET_LENGTH}

    def run():
        # One call for all batches if workers share them; else one call for each batch.
        at_once = FLAGS.sentences if workers > 1 else batch
        for i in range(0, FLAGS.sentences, at_once):
            translator.translate_batch(sources[i : i + at_once], **options, **limits)

    return timed(run, FLAGS.sentences)


def ours_on_text(precision, jit_compile, workers, threads, patience):
    import tensorflow as tf

    from keras_transformer.precision import in_precision
    from keras_transformer.training import ModelDir
    from keras_transformer.translator import Translator

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    model_dir = ModelDir(FLAGS.model_dir[0])
    translator = Translator(
        in_precision(model_dir.load_model(), precision),
        model_dir.load_tokenizer(),
        beam_size=5,
        patience=patience,
        tokens_per_batch=FLAGS.tokens_per_batch,
        jit_compile=jit_compile,
        workers=workers,
    )
    sentences = Path(FLAGS.source).read_text().splitlines()
    return {**timed(lambda: translator(sentences), len(sentences)), **bleu(translator(sentences))}


def ctranslate2_on_text(precision, workers, threads, folder):
    import ctranslate2
    import sentencepiece

    translator = ctranslate2.Translator(
        folder, compute_type=precision, inter_threads=workers, intra_threads=threads
    )
    pieces = sentencepiece.SentencePieceProcessor(model_file=f"{folder}/sentencepiece.model")
    sentences = Path(FLAGS.source).read_text().splitlines()

    def run():
        results = translator.translate_batch(
            pieces.encode(sentences, out_type=str),
            beam_size=5,
            max_batch_size=FLAGS.tokens_per_batch,
            batch_type="tokens",
            length_penalty=1,
            return_end_token=True,  # so that it counts as in our |Y|
        )
        return [pieces.decode(result.hypotheses[0]) for result in results]

    return {**timed(run, len(sentences)), **bleu(run())}


def engine_on_text(precision, workers):
    from keras_transformer.ctranslate2.converted import ConvertedModel
    from keras_transformer.ctranslate2.translator import CTranslate2Translator

    model = ConvertedModel(FLAGS.model_dir[0], precision=precision)
    translator = CTranslate2Translator(model, beam_size=5, patience=1.0, workers=workers)
    sentences = Path(FLAGS.source).read_text().splitlines()
    return {**timed(lambda: translator(sentences), len(sentences)), **bleu(translator(sentences))}


# The script that a user of CTranslate2 would write; its search ends by `--patience=1`.
LOOP = """
import sys
import ctranslate2
import sentencepiece

folder, source, precision, workers, threads, tokens = sys.argv[1:]
translator = ctranslate2.Translator(
    folder, compute_type=precision, inter_threads=int(workers), intra_threads=int(threads)
)
pieces = sentencepiece.SentencePieceProcessor(model_file=f"{folder}/sentencepiece.model")
results = translator.translate_batch(
    pieces.encode([line.rstrip("\\n") for line in open(source, encoding="utf-8")], out_type=str),
    beam_size=5,
    max_batch_size=int(tokens),
    batch_type="tokens",
    length_penalty=1,
    return_end_token=True,
)
for result in results:
    print(pieces.decode(result.hypotheses[0]))
"""


def compare_commands(folder, precision):
    """Prints the times of the command `translate --engine=ctranslate2` and a script of `LOOP`."""
    tokens, root = str(FLAGS.tokens_per_batch), Path(__file__).parent.parent
    commands = {
        "CTranslate2's own loop": [
            "-c",
            LOOP,
            folder,
            FLAGS.source,
            precision,
            str(THREADS),
            "1",
            tokens,
        ],
        "translate --engine=ctranslate2": [
            "-m",
            "keras_transformer",
            "translate",
            "--engine=ctranslate2",
            "--beam_size=5",
            "--patience=1",
            f"--model_dir={FLAGS.model_dir[0]}",
            f"--precision={precision}",
            f"--workers={THREADS}",
        ],
    }
    seconds, lines = {name: [] for name in commands}, {}
    for round_ in range(FLAGS.rounds + 1):  # in the first, the files are in no cache
        for name, command in commands.items():
            with open(FLAGS.source) as source:
                start = time.perf_counter()
                done = subprocess.run(
                    [sys.executable, *command],
                    stdin=source,
                    capture_output=True,
                    text=True,
                    check=True,
                    env={**os.environ, "PYTHONPATH": str(root)},
                )
            lines[name] = done.stdout.splitlines()
            if round_:
                seconds[name].append(time.perf_counter() - start)
    print(f"\nwhole command, {precision}, seconds, median of {FLAGS.rounds} rounds")
    for name, rounds in seconds.items():
        median = statistics.median(rounds)
        print(f"{median:10.2f}  ({min(rounds):.2f} to {max(rounds):.2f})  {name}")
    theirs, ours = (statistics.median(rounds) for rounds in seconds.values())
    differ = sum(a != b for a, b in zip(*lines.values(), strict=True))
    print(f"{ours / theirs:10.2f}  times its own loop's time; {differ} lines differ")


def compare_engine(folder):
    """Times our use of CTranslate2 and its own loop, within a process and as commands."""
    for precision in ("float32", "int8"):
        theirs = {"precision": precision, "workers": THREADS, "threads": 1, "folder": folder}
        ours = {"precision": precision, "workers": THREADS}
        runs = {
            f"CTranslate2's own loop, {precision}": {"function": "ctranslate2_on_text", **theirs},
            f"ours by CTranslate2, {precision}": {"function": "engine_on_text", **ours},
        }
        compare(f"{FLAGS.source}, beam 5", runs, "sentences/s", 1)
        exported = f"{folder}-{precision}"
        export(exported, precision)
        compare_commands(exported, precision)


def export(folder, precision):
    from keras_transformer.ctranslate2 import export_ctranslate2
    from keras_transformer.training import ModelDir

    model_dir = ModelDir(FLAGS.model_dir[0])
    export_ctranslate2(model_dir.load_model(), model_dir.load_tokenizer(), folder, precision)


def bleu(hypotheses):
    if not FLAGS.reference:
        return {}
    import sacrebleu

    references = Path(FLAGS.reference).read_text().splitlines()
    return {"BLEU": sacrebleu.corpus_bleu(hypotheses, [references]).score}


def write_ctranslate2(size, folder):
    """Writes the random model for CTranslate2, with ids as names of its symbols."""
    from keras_transformer.ctranslate2.export import model_spec
    from keras_transformer.ctranslate2.weights import model_weights

    model = random_model(size)
    ids = range(4, model.config.vocab_size)
    pieces = ["<pad>", "<s>", "</s>", "<unk>", *(f"t{i}" for i in ids)]
    spec = model_spec(model.config, model_weights(model), pieces, unknown_id=3)
    spec.validate()
    spec.optimize(None)
    Path(folder).mkdir()
    spec.save(folder)


def run_contestant(**settings):
    result = globals()[settings.pop("function")](**settings)
    print(json.dumps(result))


def in_a_process(settings):
    flags_given = [
        f"--{name}={FLAGS[name].value}" for name in ("seconds", "sentences", "tokens_per_batch")
    ]
    for name in ("source", "reference"):
        flags_given += [f"--{name}={FLAGS[name].value}"] * (FLAGS[name].value is not None)
    if FLAGS.model_dir:
        flags_given.append(f"--model_dir={','.join(FLAGS.model_dir)}")
    environment = {**os.environ, "OMP_NUM_THREADS": str(THREADS), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, __file__, *flags_given, f"--contestant={json.dumps(settings)}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def compare(title, runs, unit, per_sentence):
    """Runs the contestants in turns, and prints the medians and the ratio of the best ones."""
    results = {name: [] for name in runs}
    for _ in range(FLAGS.rounds):
        for name, settings in runs.items():
            results[name].append(in_a_process(settings))
    print(f"\n{title}, {unit}, median of {FLAGS.rounds} rounds (lowest to highest)")
    speeds = {}
    for name, rounds in results.items():
        speed = [round_["sentences/s"] * per_sentence for round_ in rounds]
        speeds[name] = statistics.median(speed)
        more = f"  {rounds[0]['BLEU']:.2f} BLEU" if "BLEU" in rounds[0] else ""
        print(
            f"{speeds[name]:10,.0f}  ({min(speed):,.0f} to {max(speed):,.0f})  "
            f"{rounds[0]['MiB']:6,.0f} MiB{more}  {name}"
        )
    for precision in ("float32", ""):
        ours, theirs = (
            max((v for n, v in speeds.items() if n.startswith(who) and precision in n), default=0)
            for who in ("ours", "CTranslate2")
        )
        if ours and theirs:
            print(f"{ours / theirs:10.2f}  times CTranslate2, {precision or 'best precision'}")


def chosen(batch):
    return ((name, how) for name, how in contestants(batch) if FLAGS.only in name)


def main(_):
    if FLAGS.contestant:
        return run_contestant(**json.loads(FLAGS.contestant))
    with tempfile.TemporaryDirectory() as temporary:
        if FLAGS.model_dir:
            folder = f"{temporary}/model"
            export(folder, "float32")
            if FLAGS.engine:
                return compare_engine(folder)
            runs = {}
            for name, how in chosen(batch=32):
                if name.startswith("CTranslate2"):
                    runs[name] = {"function": "ctranslate2_on_text", "folder": folder, **how}
                    continue
                # With CTranslate2's rule for ending a search, and with the paper's.
                for patience in (1.0, None):
                    title = f"{name}, patience: {patience}"
                    runs[title] = {"function": "ours_on_text", "patience": patience, **how}
            compare(f"{FLAGS.source}, beam 5", runs, "sentences/s", 1)
            return
        for size in FLAGS.sizes:
            folder = f"{temporary}/{size}"
            write_ctranslate2(size, folder)
            for batch in map(int, FLAGS.batches):
                runs = {
                    name: {"function": "ctranslate2_on_ids", "folder": folder}
                    if name.startswith("CTranslate2")
                    else {"function": "ours_on_ids"}
                    for name, how in chosen(batch)
                }
                for name, how in chosen(batch):
                    runs[name] |= {"size": size, "batch": batch, **how}
                title = f"{size}, batch {batch}, beam {BEAM_SIZE}"
                compare(title, runs, "target tokens/s", TARGET_LENGTH)


if __name__ == "__main__":
    app.run(main)
