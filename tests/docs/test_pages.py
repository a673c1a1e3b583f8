"""The Python on the pages runs, in a folder that holds the files which the pages name."""

import ast
import re
import shutil

import numpy as np
import pytest
from helpers import ROOT, lively_model, run_python

import keras_transformer as kt
from keras_transformer.ctranslate2 import export_ctranslate2
from keras_transformer.data.builtin.corpus import builtin_pairs

RUN_ELSEWHERE = {
    "beam.md": "test_beam.py runs the transforms, where apache-beam is installed",
    "jax.md": "the test below runs it on JAX",
    "tensorflow_serving.md": "test_saved_model.py runs the client beside a server",
}
SHORTER = {
    'from_preset("tiny", steps=2200)': "from_preset('tiny', steps=2)",
    "vocab_size=10_000": "vocab_size=340",
    'from_preset("tiny",': 'from_preset("tiny", num_encoder_layers=1, num_decoder_layers=1,',
    "epochs=10)": "epochs=1)",
    "padded_batch(256,": "padded_batch(16,",
}


def python_of(page):
    code = "".join(re.findall(r"```python\n(.*?)```", page.read_text(), re.S))
    for long, short in SHORTER.items():
        code = code.replace(long, short)
    return code


PAGES = {
    page.name: python_of(page)
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    if python_of(page) and page.name not in RUN_ELSEWHERE
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    english, german = zip(*builtin_pairs("train", 100), strict=True)
    for name, count in (("train", 100), ("valid", 5)):
        (folder / f"{name}.en").write_text("\n".join(english[:count]) + "\n")
        (folder / f"{name}.de").write_text("\n".join(german[:count]) + "\n")
    tokenizer = kt.SubwordTokenizer.train_from_sentences([*english, *german], 340)
    tokenizer.save(folder / "vocabulary.model")
    model = lively_model(1, tokenizer.vocab_size)
    for name in ("demo", "en-de", "a", "b"):
        made = kt.ModelDir(folder / "runs" / name)
        made.create_trained(model, tokenizer, target_lang="de", command="made by a test")
    several = tokenizer.with_languages(["de", "fr"])
    made = kt.ModelDir(folder / "runs/en-many")
    made.create_trained(lively_model(1, several.vocab_size), several, None, "made by a test")
    (folder / "export").mkdir()
    kt.Translator(model, tokenizer).export(folder / "export/en-de")
    (folder / "ct2").mkdir()
    export_ctranslate2(model, tokenizer, folder / "ct2/en-de")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(page, files, tmp_path, monkeypatch):
    folder = tmp_path / "files"
    shutil.copytree(files, folder)
    monkeypatch.chdir(folder)
    if page == "fit.md":
        shutil.rmtree("runs/en-de")  # the page makes it
    variables, code = {}, PAGES[page]
    if page == "fit.md":  # the README trains the same model in graphs
        code = code.replace("metrics=", "run_eagerly=True, metrics=", 1)
    exec(code, variables)  # each block continues the one before it
    if page == "fit.md":
        assert (folder / "exported/saved_model.pb").exists()
        again = kt.ModelDir("runs/en-de")
        assert len(kt.Translator(again.load_model(), again.load_tokenizer())(["Two dogs."])) == 1
    if page == "keras.md":
        assert variables["tokenizer"].vocab_size == 340
        assert variables["rows"].shape == (1, 32)
        assert variables["model"](np.ones((2, 5), "int32")).shape == (2, 5, 280)


@pytest.mark.slow
def test_the_page_of_jax_runs_on_jax(files):
    output = run_python(f"import os; os.chdir({str(files)!r})\n" + python_of(ROOT / "docs/jax.md"))
    assert len(ast.literal_eval(output.splitlines()[-1])) == 2


def test_the_pages_that_users_copy_from_are_among_them():
    assert {"README.md", "fit.md", "keras.md", "translating.md"} <= PAGES.keys()
    assert all(not re.search("10_000|epochs=10", code) for code in PAGES.values())
