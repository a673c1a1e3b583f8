"""Measures how training data of a given size are prepared and delivered: memory, waiting, speed.

  python benchmarks/data.py --pairs=5000000

Makes a synthetic corpus in a temporary folder, which it removes at the end. Each part runs in its
own process: a first run, a run with the cache of the first, and one from the middle of an epoch.
"""

import itertools
import json
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from absl import app, flags

flags.DEFINE_integer("pairs", 5_000_000, "number of pairs in the corpus", lower_bound=1)
flags.DEFINE_integer("vocab_size", 32_000, "number of entries in the vocabulary")
flags.DEFINE_integer("tokens_per_batch", 25_000, "number of tokens in a batch")
flags.DEFINE_integer("seconds", 20, "seconds to measure the pairs per second")
FLAGS = flags.FLAGS

_DIFFERENT = 100_000


def write_corpus(folder: Path, pairs: int) -> None:
    """Writes random sentences of 26 words on average, by Zipf's law from 200,000 made-up words.

    They repeat after `_DIFFERENT` pairs, which changes nothing that is measured.
    """
    rng = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))
    words = ["".join(rng.choice(letters, n)) for n in rng.integers(2, 12, size=200_000)]
    means = rng.gamma(3, 26 / 3, size=_DIFFERENT)
    for name in ("en", "de"):
        counts = np.clip(rng.poisson(means), 1, 200)
        drawn = np.minimum(rng.zipf(1.2, size=counts.sum()) - 1, len(words) - 1)
        chosen = (words[index] for index in drawn.tolist())
        lines = [" ".join(itertools.islice(chosen, count)) + "\n" for count in counts.tolist()]
        whole = "".join(lines)
        with open(folder / name, "w") as file:
            for _ in range(pairs // _DIFFERENT):
                file.write(whole)
            file.writelines(lines[: pairs % _DIFFERENT])


class Memory(threading.Thread):
    """The peak memory in MB: anonymous, and of files (which the system can reclaim)."""

    def __init__(self):
        super().__init__(daemon=True)
        self.peaks = {"RssAnon": 0, "RssFile": 0}
        self.start()

    def run(self):
        while True:
            for line in Path("/proc/self/status").read_text().splitlines():
                name, _, value = line.partition(":")
                if name in self.peaks:
                    self.peaks[name] = max(self.peaks[name], int(value.split()[0]) // 1024)
            time.sleep(0.05)


def measure(folder, options, cache, start_share, queue):
    """Measures one run in its own process."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from keras_transformer.data import Batches, Corpus, TextPairs
    from keras_transformer.text import SubwordTokenizer

    tokenizer = SubwordTokenizer.load(folder / "vocabulary")
    tokenizer.tokenize(["begin"])
    memory = Memory()
    time.sleep(0.2)
    before = dict(memory.peaks)
    began = time.perf_counter()
    pairs = TextPairs(folder / "en", folder / "de")
    corpus = Corpus.build(pairs, tokenizer, cache=cache, say=lambda line: None)
    built = time.perf_counter() - began
    batches = Batches(corpus, tokens_per_batch=options["tokens_per_batch"])
    start = int(start_share * batches.batches_per_epoch)
    stream = iter(batches.dataset(start))
    next(stream)
    first = time.perf_counter() - began
    delivered, began = 0, time.perf_counter()
    while time.perf_counter() - began < options["seconds"]:
        _, labels = next(stream)
        delivered += int((labels.numpy()[:, 0] != tokenizer.pad_id).sum())
    queue.put(
        {
            "pairs": corpus.counts.kept,
            "tokens": corpus.counts.source_tokens + corpus.counts.target_tokens,
            "seconds to tokenise or find": round(built, 1),
            "seconds to the first batch": round(first, 1),
            "pairs per second": round(delivered / (time.perf_counter() - began)),
            "MB of memory before, without files": before["RssAnon"],
            "MB of memory at most, without files": memory.peaks["RssAnon"],
            "MB of files in memory at most": memory.peaks["RssFile"],
        }
    )


def main(_):
    from keras_transformer.text import SubwordTokenizer

    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_corpus(folder, FLAGS.pairs)
        size = sum((folder / name).stat().st_size for name in ("en", "de")) / 1e6
        print(f"{FLAGS.pairs:,} pairs, {size:,.0f} MB of text, {os.cpu_count()} cores", flush=True)
        with open(folder / "en") as file:
            sample = [line for line, _ in zip(file, range(20_000), strict=False)]
        SubwordTokenizer.train_from_sentences(sample, FLAGS.vocab_size).save(folder / "vocabulary")
        options = {name: FLAGS[name].value for name in ("tokens_per_batch", "seconds")}
        cache = folder / "cache"
        for title, *arguments in (
            ("The first time, the cache being written", cache, 0),
            ("With the cache", cache, 0),
            ("With the cache, from the middle of an epoch", cache, 0.5),
        ):
            queue = spawn.Queue()
            process = spawn.Process(target=measure, args=(folder, options, *arguments, queue))
            process.start()
            process.join()
            if process.exitcode:
                sys.exit(process.exitcode)
            print(f"{title}: {json.dumps(queue.get())}", flush=True)
        cached = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file()) / 1e6
        print(f"The cache has {cached:,.0f} MB")


if __name__ == "__main__":
    app.run(main)
