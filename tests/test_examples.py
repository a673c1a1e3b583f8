"""The examples and the how-to run, and what the examples compute is right."""

import re
import runpy
import sys

import keras
import numpy as np
import pytest
from helpers import ROOT

from keras_transformer.data.builtin import builtin_pairs
from keras_transformer.tokenizers import END_ID, PAD_ID, START_ID, SubwordTokenizer


@pytest.fixture(scope="module")
def run():
    """Runs an example as a script; returns its variables."""

    def run(name, *arguments):
        path = ROOT / "examples" / name
        assert len(path.read_text().splitlines()) <= 65
        keras.utils.set_random_seed(1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", [str(path), *map(str, arguments)])
            return runpy.run_path(str(path), run_name="__main__")

    return run


@pytest.fixture(scope="module")
def classifier(run):
    return run("classifier.py")


def test_the_classifier_is_right_about_reviews_that_it_was_not_trained_on(classifier):
    (seen, _), (unseen, labels) = classifier["made_up"]()
    assert not set(seen) & set(unseen)
    assert 0.4 < np.mean(labels) < 0.6
    assert classifier["accuracy"] > 0.9  # a bag of words has 0.5


def test_a_review_alone_and_in_a_batch_is_classified_alike(classifier):
    model, tokenizer = classifier["model"], classifier["tokenizer"]
    _, (texts, _) = classifier["made_up"]()
    texts = sorted(texts, key=len)[:: len(texts) - 1]  # the shortest and the longest
    ids = tokenizer.tokenize(texts)
    assert len(ids[0]) < len(ids[1])
    alone = [model.predict(row[None], verbose=0)[0] for row in ids]
    np.testing.assert_allclose(model.predict(ids.to_tensor(), verbose=0), alone, atol=1e-5)


def test_the_classifier_reads_files(classifier, tmp_path):
    (tmp_path / "reviews.tsv").write_text("1\tIt was\tgood.\n0\tIt was not.\n", "utf-8")
    texts, labels = classifier["read"](tmp_path / "reviews.tsv")
    assert texts == ["It was\tgood.", "It was not."] and labels.tolist() == [1, 0]


@pytest.fixture(scope="module")
def language_model(run):
    return run("language_model.py")


def test_perplexity_falls_on_sentences_seen_and_unseen(language_model):
    perplexities = language_model["history"]["perplexity"]
    assert perplexities[-1] < perplexities[0] / 4
    unseen = [english for english, _ in builtin_pairs("test", 100)]
    rows = language_model["packer"](language_model["tokenizer"](unseen))
    measured = language_model["model"].evaluate(
        rows[:, :-1], rows[:, 1:], verbose=0, return_dict=True
    )
    assert measured["perplexity"] < 1.5 * perplexities[-1]


def test_the_language_model_neither_looks_ahead_nor_at_padding(language_model):
    model = language_model["model"]
    rng = np.random.default_rng(0)
    ids = rng.integers(4, 400, size=(2, 9)).astype("int32")
    other = np.concatenate([ids[:, :5], rng.integers(4, 400, size=(2, 4))], axis=1)
    before, after = model.predict(ids, verbose=0), model.predict(other, verbose=0)
    np.testing.assert_allclose(before[:, :5], after[:, :5], atol=1e-4)
    assert np.abs(before[:, 5:] - after[:, 5:]).max() > 0.1
    padded = np.pad(ids, ((0, 0), (0, 3)))
    np.testing.assert_allclose(model.predict(padded, verbose=0)[:, :9], before, atol=1e-4)


def test_keras_nlps_greedy_sampler_writes_what_a_loop_of_argmax_writes(language_model):
    import keras_nlp

    model, tokenizer = language_model["model"], language_model["tokenizer"]
    for beginning in ("The girls", "He will", ""):
        ids = [START_ID, *tokenizer(beginning).numpy()]
        while END_ID not in ids and len(ids) < language_model["LENGTH"]:
            ids.append(int(np.argmax(model(np.array([ids]))[0, -1])))
        assert PAD_ID not in ids
        written = language_model["write"](beginning, keras_nlp.samplers.GreedySampler())
        assert written == tokenizer.detokenize([ids])[0].numpy().decode()
        assert written.startswith(beginning) and len(written) > len(beginning)


def test_keras_nlps_samplers_draw_by_their_seed(language_model):
    import keras_nlp

    texts = [
        language_model["write"]("The", keras_nlp.samplers.TopPSampler(p=0.95, seed=seed))
        for seed in (1, 1, 2, 3)
    ]
    assert texts[0] == texts[1] and len(set(texts)) > 1


def test_the_code_of_the_how_to_runs(tmp_path, monkeypatch):
    sentences = [english for english, _ in builtin_pairs("train", 200)]
    SubwordTokenizer.train_from_sentences(sentences, 320).save(tmp_path / "vocabulary.model")
    monkeypatch.chdir(tmp_path)
    pages = [(ROOT / "docs" / name).read_text() for name in ("keras.md", "fit.md")]
    blocks = re.findall(r"```python\n(.*?)```", "".join(pages), re.S)
    assert len(blocks) == 6
    variables = {}
    for block in blocks:
        exec(block, variables)  # each goes on where the one before it ended
    assert variables["rows"].shape == (1, 32)
    assert variables["model"](np.ones((2, 5), "int32")).shape == (2, 5, 10_000)
    assert variables["tokenizer"].vocab_size == 320
    assert (tmp_path / "exported" / "saved_model.pb").exists()
