"""The examples run, and what they compute is right."""

import dataclasses
import functools
import io
import runpy
import sys

import keras
import numpy as np
import polib  # type: ignore[import-untyped]
import pytest
import tensorflow as tf
from helpers import ROOT, lively_model

from keras_transformer import PRESETS, ModelDir, Transformer, Translator, UserError, data
from keras_transformer.data.builtin.corpus import builtin_pairs
from keras_transformer.text import END_ID, PAD_ID, START_ID, SubwordTokenizer


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


@pytest.mark.parametrize(
    ("name", "arguments", "problem"),
    [
        ("back_translation.py", ["many"], "invalid literal for int"),
        ("back_translation.py", [20, 0], "expected numbers of at least 1"),
        ("back_translation.py", [1, 2, 3, 4], "too many values"),
        ("classifier.py", ["train.tsv"], "No such file or directory: 'train.tsv'"),
        ("constraint.py", ["runs/none"], "not enough values"),
        ("constraint.py", ["runs/none", "a phrase"], "choose the folder of a trained model"),
        ("fine_tune.py", ["runs/none", "a.en", "a.de"], "not enough values"),
        (
            "fine_tune.py",
            ["runs/none", "a.en", "a.de", "new"],
            "choose the folder of a trained model",
        ),
        ("fit_mirrored.py", ["a.en", "a.de"], "not enough values"),
        ("fit_mirrored.py", ["a.en", "a.de", "model.h5"], "ends in .keras, found model.h5"),
        ("language_model.py", ["none.txt"], "No such file or directory: 'none.txt'"),
        ("translate_po.py", ["runs/none", "de.po"], "not enough values"),
        ("translate_po.py", ["runs/none", "none.po", "new.po"], "No such file or directory"),
        ("translate_po.py", ["runs/none", __file__, "new.po"], "Syntax error in po file"),
        ("translate_po.py", ["runs/none", "de.po", __file__], "exists already"),
    ],
)
def test_wrong_arguments_end_in_one_line(run, name, arguments, problem):
    with pytest.raises(SystemExit) as end:
        run(name, *arguments)
    message = str(end.value.code)
    assert problem in message
    assert f"; usage: python examples/{name} " in message
    assert "\n" not in message


@pytest.fixture(scope="module")
def classifier(run):
    return run("classifier.py")


@pytest.mark.slow
def test_the_classifier_is_right_about_reviews_that_it_was_not_trained_on(classifier):
    (seen, _), (unseen, labels) = classifier["made_up"]()
    assert not set(seen) & set(unseen)
    assert 0.4 < np.mean(labels) < 0.6
    assert classifier["accuracy"] > 0.9  # a bag of words reaches 0.5


@pytest.mark.slow
def test_a_review_alone_and_in_a_batch_is_classified_alike(classifier):
    model, tokenizer = classifier["model"], classifier["tokenizer"]
    _, (texts, _) = classifier["made_up"]()
    texts = sorted(texts, key=len)[:: len(texts) - 1]  # the shortest and the longest
    ids = tokenizer.tokenize(texts)
    assert len(ids[0]) < len(ids[1])
    alone = [model.predict(row[None], verbose=0)[0] for row in ids]
    np.testing.assert_allclose(model.predict(ids.to_tensor(), verbose=0), alone, atol=1e-5)


@pytest.mark.slow
def test_the_classifier_reads_files(classifier, tmp_path):
    (tmp_path / "reviews.tsv").write_text("1\tIt was\tgood.\n0\tIt was not.\n", "utf-8")
    texts, labels = classifier["read"](tmp_path / "reviews.tsv")
    assert texts == ["It was\tgood.", "It was not."] and labels.tolist() == [1, 0]
    (tmp_path / "reviews.tsv").write_text("1\tIt was good.\n0\t \n", "utf-8")
    with pytest.raises(ValueError, match="expected a text in each line, found an empty one"):
        classifier["read"](tmp_path / "reviews.tsv")


@pytest.fixture(scope="module")
def language_model(run):
    return run("language_model.py")


@pytest.mark.slow
def test_perplexity_falls_on_sentences_seen_and_unseen(language_model):
    perplexities = language_model["history"]["perplexity"]
    assert perplexities[-1] < perplexities[0] / 4
    unseen = [english for english, _ in builtin_pairs("test", 100)]
    rows = language_model["packer"](language_model["tokenizer"](unseen))
    measured = language_model["model"].evaluate(
        rows[:, :-1], rows[:, 1:], verbose=0, return_dict=True
    )
    assert measured["perplexity"] < 1.5 * perplexities[-1]


@pytest.mark.slow
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


@pytest.mark.slow
def test_keras_nlps_greedy_sampler_writes_what_a_loop_of_argmax_writes(language_model):
    import keras_nlp

    model, tokenizer = language_model["model"], language_model["tokenizer"]
    for beginning in ("The girls", ""):
        ids = [START_ID, *tokenizer(beginning).numpy()]
        while END_ID not in ids and len(ids) < language_model["LENGTH"]:
            ids.append(int(np.argmax(model(np.array([ids]))[0, -1])))
        assert PAD_ID not in ids
        written = language_model["write"](beginning, keras_nlp.samplers.GreedySampler())
        assert written == tokenizer.detokenize([ids])[0].numpy().decode()
        assert written.startswith(beginning) and len(written) > len(beginning)


@pytest.mark.slow
def test_keras_nlps_samplers_draw_by_their_seed(language_model):
    import keras_nlp

    texts = [
        language_model["write"]("The", keras_nlp.samplers.TopPSampler(p=0.95, seed=seed))
        for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] and len(set(texts)) > 1


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    """A model that translates every sentence differently."""
    sentences = [sentence for pair in builtin_pairs("train", 300) for sentence in pair]
    tokenizer = SubwordTokenizer.train_from_sentences(sentences, 340)
    model = lively_model(1, tokenizer.vocab_size)
    kernel = model.output_projection.kernel.numpy()
    kernel[0, tokenizer("t").numpy()] = 4.0  # makes this word likely
    model.output_projection.kernel.assign(kernel)
    model_dir = ModelDir(tmp_path_factory.mktemp("runs") / "en-de")
    model_dir.create_trained(model, tokenizer, "de", "a test")
    return model_dir


@pytest.fixture
def ours(tmp_path):
    """Text files to fine-tune on."""
    files = tmp_path / "ours.en", tmp_path / "ours.de"
    for file, sentences in zip(files, zip(*builtin_pairs("test", 60), strict=True), strict=True):
        file.write_text("".join(f"{sentence}\n" for sentence in sentences), "utf-8")
    return files


@pytest.mark.slow
def test_fine_tuning_makes_a_new_model_dir_of_a_model_that_knows_the_text_better(
    run, model_dir, ours, tmp_path
):
    before = model_dir.load_model().get_weights()
    tuned = run("fine_tune.py", model_dir.path, *ours, tmp_path / "tuned", 4)
    perplexities = tuned["history"]["perplexity"]
    assert len(perplexities) == 4 and perplexities[-1] < 0.9 * perplexities[0]

    for weight, same in zip(model_dir.load_model().get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, same)
    new = ModelDir(tmp_path / "tuned")
    weights = new.load_model().get_weights()
    for weight, trained in zip(weights, tuned["model"].get_weights(), strict=True):
        np.testing.assert_array_equal(weight, trained)
    assert any(not np.array_equal(*both) for both in zip(weights, before, strict=True))
    assert new.load_config() == model_dir.load_config()
    assert new.load_tokenizer().to_bytes() == model_dir.load_tokenizer().to_bytes()
    assert new.load_training()["target_lang"] == "de"


@pytest.mark.slow
def test_fine_tuning_refuses_a_model_dir_that_holds_a_model_before_it_trains(run, model_dir, ours):
    with pytest.raises(SystemExit, match="has a model already: choose an empty or new folder"):
        run("fine_tune.py", model_dir.path, *ours, model_dir.path)


SENTENCES = [english for english, _ in builtin_pairs("test", 4)]
FEW = {"beam_size": 4, "n_best": 4, "extra_length": 4}


class Ids:
    """Stands for a tokenizer; its texts are ids."""

    vocab_size = 340

    def tokenize_target(self, text):
        return tf.constant([int(id_) for id_ in text.split()])


@pytest.fixture(scope="module")
def constraint(run, model_dir):
    """The example, run with "t" as the forbidden phrase."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in SENTENCES)))
        patch.setattr(sys, "stdout", printed)
        variables = run("constraint.py", model_dir.path, "t", "never said")
    return {**variables, "printed": printed.getvalue().splitlines()}


@pytest.mark.slow
def test_a_subword_is_forbidden_where_it_would_complete_a_phrase_and_nowhere_else(constraint):
    may_follow = constraint["never"](Ids(), ["7", "5 6", "8 5 9"])
    rows = [[START_ID, 8, 5], [START_ID, 5, 8], [PAD_ID, PAD_ID, START_ID]]
    allowed = may_follow(np.array([rows], "int32")).numpy()
    assert allowed.shape == (1, 3, 340)
    assert [set(np.flatnonzero(~row)) for row in allowed[0]] == [{7, 6, 9}, {7}, {7}]


@pytest.mark.slow
def test_a_phrase_may_be_longer_than_what_there_is_so_far_but_not_empty(constraint):
    may_follow = constraint["never"](Ids(), ["5 5 5 6", "6"])
    allowed = may_follow(np.array([[[START_ID, 5]]], "int32")).numpy()
    assert set(np.flatnonzero(~allowed)) == {6}
    with pytest.raises(UserError, match="found an empty one"):
        constraint["never"](Ids(), ["5", " "])


@pytest.mark.slow
def test_the_constraint_holds_in_the_script_with_other_options_and_in_an_export(
    constraint, model_dir, tmp_path
):
    model, tokenizer = model_dir.load_model(), model_dir.load_tokenizer()
    free = Translator(model, tokenizer)(SENTENCES)
    assert all(" t" in text for text in free)
    assert constraint["printed"] == constraint["translator"](SENTENCES) != free
    options = dataclasses.replace(constraint["translator"].options, **FEW)
    translator = constraint["translator"].with_options(options)
    translations = translator(SENTENCES)
    assert translations != Translator(model, tokenizer, **FEW)(SENTENCES)
    served = tf.saved_model.load(str(translator.export(tmp_path / "export")))
    texts = served.signatures["serving_default"](text=tf.constant(SENTENCES))["translation"]
    assert [text.decode() for text in texts.numpy()] == translations


@pytest.fixture(scope="module")
def back_translation(run):
    """The example with small models, and the text that each of them was trained on."""
    texts, make = [], data.translation_dataset
    small = dict(num_encoder_layers=1, num_decoder_layers=1, d_model=16, d_ff=16, num_heads=2)

    def read_and_make(*arguments, **options):
        texts.append([file.read_text("utf-8").splitlines() for file in arguments[:2]])
        return make(*arguments, **options)

    def few(split, count):  # a model that is hardly trained ends no translation by itself
        return builtin_pairs(split, 4 if split == "test" else count)

    # Tracing a step takes longer than the one that each model takes.
    eager = functools.partialmethod(Transformer.compile, run_eagerly=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Transformer, "compile", eager)
        patch.setattr("keras_transformer.data.builtin.corpus.builtin_pairs", few)
        patch.setattr(data, "translation_dataset", read_and_make)
        patch.setitem(PRESETS, "demo", PRESETS["demo"]._replace(model=small))
        return {**run("back_translation.py", 300, 30, 1), "texts": texts}


@pytest.mark.slow
def test_back_translation_trains_on_real_pairs_and_on_drawn_english_of_other_german(
    back_translation,
):
    english, german = map(list, zip(*builtin_pairs("train", 330), strict=True))
    drawn = back_translation["drawn"]
    assert len(drawn) == 30 and not set(drawn) & set(english)
    assert back_translation["texts"] == [
        [german[:300], english[:300]],
        [english[:300], german[:300]],
        [english[:300] + drawn, german],
    ]


@pytest.mark.slow
def test_the_english_is_drawn_and_by_its_seed(back_translation):
    model, tokenizer = back_translation["backward"], back_translation["tokenizer"]
    german = back_translation["german_alone"]
    drawn, greedy = (
        Translator(model, tokenizer, beam_size=1, **options)(german)
        for options in ({"sample": True, "seed": 1}, {})
    )
    assert drawn == back_translation["drawn"] != greedy


CATALOGUE = r"""# The header of a catalogue.
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=2; plural=n != 1;\n"

#, c-format
msgid "The man sees %s.\n"
msgstr ""

msgid "%d dog sleeps."
msgid_plural "%d dogs sleep."
msgstr[0] ""
msgstr[1] ""

#, fuzzy
msgid "Two dogs"
msgstr "Zwei Katzen"

msgid "A dog"
msgstr "Ein Hund"
"""


@pytest.mark.slow
def test_messages_without_a_translation_get_one_with_their_placeholders(run, model_dir, tmp_path):
    source, target = tmp_path / "de.po", tmp_path / "new.po"
    source.write_text(CATALOGUE, "utf-8")
    run("translate_po.py", model_dir.path, source, target)
    assert source.read_text("utf-8") == CATALOGUE
    sentence, plural, unsure, done = catalogue = polib.pofile(target)
    assert catalogue.metadata == polib.pofile(source).metadata
    assert sentence.flags == ["fuzzy", "c-format"]
    assert sentence.msgstr.count("%s") == 1 and sentence.msgstr.endswith("\n")
    assert plural.fuzzy and plural.msgstr == ""
    assert [one.count("%d") for one in plural.msgstr_plural.values()] == [1, 1]
    assert plural.msgstr_plural[0] != plural.msgstr_plural[1]
    assert unsure.msgstr == "Zwei Katzen" and done.msgstr == "Ein Hund" and not done.fuzzy


@pytest.mark.slow
def test_a_language_with_one_form_for_all_numbers_gets_the_plural(run, model_dir, tmp_path):
    source, both, one = tmp_path / "de.po", tmp_path / "both.po", tmp_path / "one.po"
    source.write_text(CATALOGUE, "utf-8")
    run("translate_po.py", model_dir.path, source, both)
    source.write_text(CATALOGUE.replace('msgstr[1] ""\n', ""), "utf-8")
    run("translate_po.py", model_dir.path, source, one)
    assert polib.pofile(one)[1].msgstr_plural == {0: polib.pofile(both)[1].msgstr_plural[1]}
