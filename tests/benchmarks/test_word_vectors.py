"""The benchmark of word vectors: an untrained parser that begins with them."""

import numpy as np
import pytest
from command_lines import refused, run

from keras_transformer.training import ModelDir

SCRIPT = "benchmarks/word_vectors.py"
WORDS = ["the", "dogs", "zebra", "%"]


@pytest.fixture
def options(tmp_path):
    """The benchmark's options, with a treebank that has the first two of four words."""
    (tmp_path / "train.mrg").write_text("(S (NP (DT The) (NNS dogs)) (VP (VBP bark)))\n" * 2)
    numbers = np.random.default_rng(0).normal(size=(4, 3))
    lines = [" ".join([word, *map(str, row)]) for word, row in zip(WORDS, numbers, strict=True)]
    (tmp_path / "vectors.txt").write_text("\n".join(lines))
    return {
        "vectors": tmp_path / "vectors.txt",
        "train_source": tmp_path / "train.mrg",
        "output": tmp_path / "start",
    }


def test_embeddings_are_as_far_from_each_other_as_the_vectors(options, capsys):
    run(SCRIPT, **options)
    start = ModelDir(options["output"])
    model, tokenizer = start.load_model(), start.load_tokenizer()
    assert model.config.vocab_size == tokenizer.vocab_size == 6004
    embeddings = model.source_embedding.embeddings.numpy()
    rows = {word: embeddings[tokenizer.pieces.index(word)] for word in [*WORDS, "The", "bark"]}
    given = np.loadtxt(options["vectors"], str, comments=None)[:, 1:].astype(float)
    found = np.array([rows[word] for word in WORDS])
    ratios = [
        np.linalg.norm(found[i] - found[j]) / np.linalg.norm(given[i] - given[j])
        for i in range(4)
        for j in range(i)
    ]
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-4)
    np.testing.assert_array_equal(rows["The"], rows["the"])
    assert np.std(rows["bark"]) == pytest.approx(128**-0.5, rel=0.3)  # has no vector
    command = capsys.readouterr().out
    assert f"--start_from={options['output']} --vocab_size=6004 " in command


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", "expected words with different vectors, found none"),
        ("a 1 2\n", "expected words with different vectors, found none"),
        ("a 1 2\nb 1 2\n", "expected words with different vectors, found none"),
        ("a 1 2\nb 3\n", "vectors.txt:2: expected a word and at least two numbers, as many in"),
        ("a 1 2\nb nan 2\n", "vectors.txt:2: expected"),
        ("a 1 2\nb 3 x\n", "vectors.txt:2: expected"),
        ("a 1 2\n\n", "vectors.txt:2: expected"),
        ("400000 100\n", "vectors.txt:1: expected"),  # the first line of word2vec's files
    ],
)
def test_a_file_of_something_else_is_refused(options, lines, message):
    options["vectors"].write_text(lines)
    assert message in refused(SCRIPT, **options)
    assert not options["output"].exists()
