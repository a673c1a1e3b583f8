"""Compares the word alignment of `translate --alignment` with that of a statistical aligner.

  pip install eflomal
  python benchmarks/alignment.py --model_dir=runs/en-de --train_source=train.en \\
      --train_target=train.de --source=test.en --reference=test.de

eflomal (Östling and Tiedemann, 2016; GPL, so it is no dependency of this package) aligns the
training pairs, the first sentences of `--source` with our translations, and the same sentences with
their references, in both directions. Its directions are combined by grow-diag-final-and. Words are
those of white space, lowercased and without punctuation at their ends for eflomal. Against its
links, the output gives precision, recall and F1 of ours, and the alignment error rate (Och and Ney,
2003), whose sure links are those of both directions.
"""

import itertools
import subprocess
import sys
import tempfile
from pathlib import Path

from absl import flags

import keras_transformer as kt
from keras_transformer.cli.command import Command
from keras_transformer.cli.main import run
from keras_transformer.text.text_files import read_lines

flags.DEFINE_string("model_dir", None, "folder of a trained model", required=True)
flags.DEFINE_string("train_source", None, "source side of the pairs to learn from", required=True)
flags.DEFINE_string("train_target", None, "target side of these pairs", required=True)
flags.DEFINE_string("source", None, "sentences to align", required=True)
flags.DEFINE_string("reference", None, "their translations", required=True)
flags.DEFINE_integer("lines", 100, "number of sentences to align", 1)
flags.DEFINE_string("eflomal", "eflomal-align", "eflomal's command")
FLAGS = flags.FLAGS

NEIGHBOURS = [step for step in itertools.product((-1, 0, 1), repeat=2) if any(step)]


def main():
    translator = kt.load(FLAGS.model_dir)
    sources, references = (
        list(itertools.islice(read_lines(path), FLAGS.lines))
        for path in (FLAGS.source, FLAGS.reference)
    )
    targets = [*translator(sources), *references]
    ours = [set(one.of_words().links) for one in translator.align([*sources] * 2, targets)]
    train = [list(read_lines(path)) for path in (FLAGS.train_source, FLAGS.train_target)]
    forward, backward = statistical([*sources, *sources, *train[0]], [*targets, *train[1]])
    both = list(zip(forward, backward, strict=True))[: len(ours)]
    for start, name in ((0, "own translations"), (len(sources), "references")):
        rows = range(start, start + len(sources))
        combined = [grown(*both[row]) for row in rows]
        sure = [both[row][0] & both[row][1] for row in rows]
        print(f"{name}, {len(rows)} sentences")
        print(agreement("translate --alignment", [ours[row] for row in rows], sure, combined))
        for direction, label in enumerate(("eflomal, forward", "eflomal, backward")):
            print(agreement(label, [both[row][direction] for row in rows], sure, combined))


def statistical(sources, targets):
    """eflomal's links of each pair of lines, forward and backward: lists of {(source, target)}."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder, name)) for name in ("source", "target", "forward", "backward")]
        for path, lines in zip(paths, (sources, targets), strict=False):
            Path(path).write_text(
                "".join(f"{' '.join(map(plain, line.split()))}\n" for line in lines)
            )
        options = itertools.chain.from_iterable(zip(["-s", "-t", "-f", "-r"], paths, strict=True))
        subprocess.run([FLAGS.eflomal, "--overwrite", *options], check=True)
        return [
            [{tuple(map(int, link.split("-"))) for link in line.split()} for line in open(path)]
            for path in paths[2:]
        ]


def plain(word):
    """The word in lower case, without punctuation at its ends; punctuation alone stays."""
    start = next((i for i, character in enumerate(word) if character.isalnum()), 0)
    end = next((i for i, character in enumerate(reversed(word)) if character.isalnum()), 0)
    return word[start : len(word) - end].lower()


def grown(forward, backward):
    """Combines the links of two directions by grow-diag-final-and (Koehn et al., 2005)."""
    union, links = forward | backward, forward & backward

    def unaligned(link):
        source, target = link
        return [source not in {s for s, _ in links}, target not in {t for _, t in links}]

    added = True
    while added:
        near = {(s + i, t + j) for s, t in links for i, j in NEIGHBOURS} & union - links
        added = next((link for link in sorted(near) if any(unaligned(link))), None)
        links = links | ({added} if added else set())
    for direction in (forward, backward):
        for link in sorted(direction - links):
            if all(unaligned(link)):
                links = links | {link}
    return links


def agreement(label, found, sure, combined):
    """A line of the output: the agreement of some links with eflomal's combined ones."""
    number, of_combined, of_sure = (sum(map(len, links)) for links in (found, combined, sure))
    common = sum(len(a & b) for a, b in zip(found, combined, strict=True))
    common_sure = sum(len(a & b) for a, b in zip(found, sure, strict=True))
    precision, recall = common / number, common / of_combined
    f1 = 2 * precision * recall / (precision + recall)
    error = 1 - (common_sure + common) / (number + of_sure)
    return (
        f"  {label:<22} {number:5} links: precision {precision:.3f}, recall {recall:.3f}, "
        f"F1 {f1:.3f}, AER {error:.3f}"
    )


if __name__ == "__main__":
    run(Command(main, __doc__), "alignment.py", sys.argv[1:])
