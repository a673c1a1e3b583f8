"""A SavedModel gives the strings of its Translator, without the package and without Keras."""

import dataclasses
import errno
import functools
import json
import os
import re
import sys
from concurrent import futures
from pathlib import Path

import grpc
import keras
import pytest
import tensorflow as tf
from command_lines import refused, run_process
from helpers import ROOT, lively_model, run_python
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow_serving.apis import prediction_service_pb2_grpc
from tensorflow_serving.apis.predict_pb2 import PredictRequest, PredictResponse
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from keras_transformer.data import BuiltinPairs
from keras_transformer.errors import UserError
from keras_transformer.export import export_saved_model, saved_model
from keras_transformer.search import NO_HYPOTHESIS, SearchOptions
from keras_transformer.serving.servable import SavedModelServable
from keras_transformer.text import SubwordTokenizer, in_graph
from keras_transformer.training import ModelDir
from keras_transformer.translation import one_line
from keras_transformer.translator import Translator

SENTENCES = [
    "The girls sleep.",
    "He will not buy a small lamp, because it is dear.",
    "",
    "A horse!",
    "Yes",
    "house " * 100,
    "The old man sees two birds.",
    "\t \u3000",
]
NOT_UTF_8 = [b"\xff\xfe", b"caf\xe9 au lait", b"\xf0\x9f\x90", b"a\x00b"]


load_anew = tf.saved_model.load


@pytest.fixture(scope="module", autouse=True)
def loaded_once():
    """Loading takes seconds, so each folder is loaded once, unless by `load_anew`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tf.saved_model, "load", functools.cache(load_anew))
        yield


@pytest.fixture(scope="module")
def translator():
    """A translator that translates every sentence differently, in small batches."""
    tokenizer = SubwordTokenizer.train_from_sentences(BuiltinPairs("train", 300).sentences(), 340)
    model = lively_model(1, tokenizer.vocab_size)
    limits = dict(tokens_per_batch=60, max_source_length=30)
    return Translator(model, tokenizer, extra_length=5, n_best=3, **limits)


@pytest.fixture(scope="module")
def exported(translator, tmp_path_factory):
    """The folder of version 1."""
    return translator.export(tmp_path_factory.mktemp("export") / "en-de")


@pytest.fixture(scope="module")
def signatures(exported):
    return tf.saved_model.load(str(exported)).signatures


@pytest.fixture(scope="module")
def expected(translator):
    return [translation._asdict() for translation in translator.translate(SENTENCES)]


def translate(signatures, texts):
    outputs = signatures["serving_default"](text=tf.constant(texts, tf.string))
    translations, scores = outputs["translation"].numpy(), outputs["score"].numpy()
    pairs = zip(translations.tolist(), scores.tolist(), strict=True)
    return [{"text": text.decode(), "score": score} for text, score in pairs]


@pytest.mark.slow
def test_signatures_have_the_names_and_shapes_of_the_contract(signatures):
    inputs = {name: set(f.structured_input_signature[1]) for name, f in signatures.items()}
    one, two = {"text"}, {"text", "translation"}
    assert inputs == {"serving_default": one, "nbest": one, "score": two}
    outputs = {
        name: {key: (spec.dtype.name, *spec.shape) for key, spec in f.structured_outputs.items()}
        for name, f in signatures.items()
    }
    assert outputs == {
        "serving_default": {"translation": ("string", None), "score": ("float32", None)},
        "nbest": {"translations": ("string", None, 3), "scores": ("float32", None, 3)},
        "score": {"score": ("float32", None)},
    }


@pytest.mark.slow
def test_translations_and_scores_are_exactly_those_of_the_translator(signatures, expected):
    assert translate(signatures, SENTENCES) == expected
    assert len({one["text"] for one in expected}) == len(SENTENCES) - 1  # two of them are blank


@pytest.mark.slow
def test_a_sentence_is_translated_as_it_is_alone(signatures, expected):
    for sentence, one in zip(SENTENCES, expected, strict=True):
        [alone] = translate(signatures, [sentence])
        assert alone == {"text": one["text"], "score": pytest.approx(one["score"], rel=1e-4)}


@pytest.mark.slow
def test_bytes_that_are_not_text_are_translated_as_the_translator_does(signatures, translator):
    expected = [translation._asdict() for translation in translator.translate(NOT_UTF_8)]
    assert translate(signatures, NOT_UTF_8) == expected


@pytest.mark.slow
def test_no_texts_become_no_translations(signatures):
    nothing = tf.constant([], tf.string)
    assert translate(signatures, []) == []
    assert signatures["nbest"](text=nothing)["translations"].shape == (0, 3)
    assert signatures["score"](text=nothing, translation=nothing)["score"].shape == (0,)


@pytest.mark.slow
def test_the_first_of_the_best_is_the_translation_and_the_others_follow(signatures, expected):
    best = signatures["nbest"](text=tf.constant(SENTENCES))
    texts, scores = best["translations"].numpy(), best["scores"].numpy()
    assert [text.decode() for text in texts[:, 0]] == [one["text"] for one in expected]
    assert scores[:, 0].tolist() == pytest.approx([one["score"] for one in expected], rel=1e-4)
    for row, row_scores, sentence in zip(texts, scores, SENTENCES, strict=True):
        if sentence.strip():
            assert len(set(row)) == 3 and sorted(row_scores, reverse=True) == list(row_scores)
        else:
            assert row.tolist() == [b"", b"", b""]
            assert row_scores.tolist() == [0.0, NO_HYPOTHESIS, NO_HYPOTHESIS]


@pytest.mark.parametrize(("patience", "n_best"), [(None, 1), (1.0, 1), (0.25, 4)])
def test_the_best_is_searched_alone_unless_patience_ends_that_search_sooner(
    translator, monkeypatch, patience, n_best
):
    searched = []

    def search(models, source_ids, options, **others):
        searched.append(options.n_best)
        batch = tf.shape(source_ids)[0]
        return tf.zeros([batch, options.n_best, 1], tf.int32), tf.zeros([batch, options.n_best])

    monkeypatch.setattr(saved_model.search, "search", search)
    options = SearchOptions(beam_size=4, n_best=4, patience=patience)
    served = saved_model._ServedTranslator(translator.with_options(options))
    assert served.translate(tf.constant(["Yes"]))["score"].numpy().tolist() == [0.0]
    assert searched == [n_best]


@pytest.mark.slow
def test_given_translations_are_scored_as_the_translator_scores_them(signatures, translator):
    translations = ["Ja.", "", "", "Ein Pferd!", "Nein", "Haus " * 100, "Der alte Mann.", "Ja"]
    inputs = {"text": tf.constant(SENTENCES), "translation": tf.constant(translations)}
    found = signatures["score"](**inputs)["score"].numpy()
    assert found.tolist() == pytest.approx(translator.score(SENTENCES, translations), rel=1e-4)


@pytest.mark.slow
def test_scores_are_numbers_of_strict_json_where_there_is_no_hypothesis_too(signatures):
    found = [
        signatures["nbest"](text=tf.constant(["", "Yes"]))["scores"],
        signatures["score"](text=tf.constant([""]), translation=tf.constant(["Ja"]))["score"],
    ]
    scores = json.loads(json.dumps([scores.numpy().tolist() for scores in found], allow_nan=False))
    assert scores[0][0] == [0.0, NO_HYPOTHESIS, NO_HYPOTHESIS]
    assert scores[1] == [NO_HYPOTHESIS]


@pytest.mark.slow
def test_a_translation_must_be_given_for_each_text(signatures):
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="translation must have one value for each text"
    ):
        signatures["score"](text=tf.constant(["Yes", "No"]), translation=tf.constant(["Ja"]))


@settings(max_examples=200)
@given(said=st.lists(st.sampled_from([*range(4, 4 + 256), 300]), min_size=1))
def test_what_a_model_may_spell_becomes_the_same_line_in_the_graph(translator, said):
    spelled = translator.tokenizer.detokenize(tf.constant([said]))
    [line] = in_graph.one_line(spelled).numpy()
    assert line.decode() == one_line(spelled.numpy()[0].decode())


@pytest.mark.slow
def test_white_space_of_every_script_is_one_space():
    characters = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    texts = [f"{c} a{c}{c}b{c}".encode() for c in characters]
    lines = in_graph.one_line(tf.constant(texts)).numpy().tolist()
    assert [line.decode() for line in lines] == [one_line(text.decode()) for text in texts]


WITHOUT_KERAS = """
import importlib.util, json, sys
from pathlib import Path

folder, texts = sys.argv[1], json.loads(sys.argv[2])
text_package = Path(importlib.util.find_spec("tensorflow_text").origin).parent
# TensorFlow Text's Python imports Keras for layers of its own: only its operations are loaded.
blocked = ["keras", "tf_keras", "keras_nlp", "keras_hub", "keras_transformer", "sentencepiece",
           "tensorflow_text"]
sys.modules.update(dict.fromkeys(blocked))  # importing one of them fails from here on
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow.python.framework import op_def_registry

[graph] = SavedModel.FromString(Path(folder, "saved_model.pb").read_bytes()).meta_graphs
functions = graph.graph_def.library.function
used = {node.op for nodes in (graph.graph_def.node, *(f.node_def for f in functions))
        for node in nodes} - {f.signature.name for f in functions}
print(json.dumps(sorted(name for name in used if op_def_registry.get(name) is None)))
tf.load_op_library(str(text_package / "python/ops/_sentencepiece_tokenizer.so"))

def strings(outputs):
    return [text.decode() for text in outputs["translation"]]

outputs = tf.saved_model.load(folder).signatures["serving_default"](text=tf.constant(texts))
print(json.dumps(strings({name: output.numpy() for name, output in outputs.items()})))
with tf.compat.v1.Session(graph=tf.Graph()) as session:
    signatures = tf.compat.v1.saved_model.load(session, ["serve"], folder).signature_def
    signature = signatures["serving_default"]
    fetches = {name: tensor.name for name, tensor in signature.outputs.items()}
    print(json.dumps(strings(session.run(fetches, {signature.inputs["text"].name: texts}))))
assert all(sys.modules[name] is None for name in blocked)
"""


@pytest.mark.slow
def test_a_process_without_keras_and_this_package_gives_the_same_strings(exported, expected):
    printed = run_python(WITHOUT_KERAS, exported, json.dumps(SENTENCES)).splitlines()
    foreign, loaded, in_session = map(json.loads, printed)
    assert foreign == ["SentencepieceDetokenizeOp", "SentencepieceOp", "SentencepieceTokenizeOp"]
    assert loaded == in_session == [one["text"] for one in expected]


@pytest.mark.slow
def test_no_object_of_keras_is_in_it(exported):
    [graph] = SavedModel.FromString((exported / "saved_model.pb").read_bytes()).meta_graphs
    objects = {node.user_object.identifier for node in graph.object_graph_def.nodes}
    assert objects == {"", "_generic_user_object", "trackable_list_wrapper", "signature_map"}


@pytest.fixture(scope="module")
def predict(signatures):
    """Answers a `PredictRequest`, as TensorFlow Serving does."""

    def predict(request: PredictRequest, context=None) -> PredictResponse:
        signature = signatures[request.model_spec.signature_name or "serving_default"]
        inputs = {name: tf.constant(tf.make_ndarray(x)) for name, x in request.inputs.items()}
        outputs = signature(**inputs).items()
        return PredictResponse(outputs={k: tf.make_tensor_proto(x.numpy()) for k, x in outputs})

    return predict


@pytest.mark.slow
def test_the_client_of_the_documentation_gets_the_translations(predict, translator):
    class Service(prediction_service_pb2_grpc.PredictionServiceServicer):
        Predict = staticmethod(predict)

    server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        [client] = re.findall(
            r"```python\n(.*?)```", (ROOT / "docs/tensorflow_serving.md").read_text(), re.S
        )
        assert "localhost:8500" in client
        printed = run_python(client.replace("localhost:8500", f"127.0.0.1:{port}"))
    finally:
        server.stop(grace=None)
    assert printed.splitlines() == translator(["A man rides a horse.", "Two dogs."])


@pytest.mark.slow
def test_warm_up_requests_can_be_made_of_every_signature(exported, predict, translator):
    path = exported / "assets.extra" / "tf_serving_warmup_requests"
    logs = [PredictionLog.FromString(x.numpy()) for x in tf.data.TFRecordDataset(str(path))]
    requests = [log.predict_log.request for log in logs]
    responses = {request.model_spec.signature_name: predict(request) for request in requests}
    assert responses.keys() == {"serving_default", "nbest", "score"}
    [text] = tf.make_ndarray(requests[0].inputs["text"])
    [translation] = tf.make_ndarray(responses["serving_default"].outputs["translation"])
    assert translator([text]) == [translation.decode()] != [""]


# A translator that samples.


@pytest.fixture(scope="module")
def sampling(translator):
    """Makes translators that draw, with or without a seed; they share graphs."""
    options = SearchOptions(sample=True, beam_size=2, n_best=2, extra_length=5)

    def sampling(seed=None):
        return translator.with_options(dataclasses.replace(options, seed=seed))

    return sampling


@pytest.fixture(scope="module")
def exported_sampling(sampling, tmp_path_factory):
    keras.utils.set_random_seed(1)  # the export must not sample by this seed
    return sampling().export(tmp_path_factory.mktemp("export") / "sampling")


@pytest.mark.slow
def test_without_a_seed_each_load_and_each_call_draws_anew(exported_sampling):
    loads = [load(str(exported_sampling)) for load in (tf.saved_model.load, load_anew)]
    draws = []
    for loaded in loads:
        tf.random.set_seed(1)
        for _ in range(2):
            draws.append([one["text"] for one in translate(loaded.signatures, SENTENCES)])
    assert len({tuple(texts) for texts in draws}) == 4


@pytest.mark.slow
def test_a_seed_for_each_text_draws_as_the_translator_of_that_seed(exported_sampling, sampling):
    sample = tf.saved_model.load(str(exported_sampling)).signatures["sample"]
    texts, seeds = [*SENTENCES, SENTENCES[0], SENTENCES[0]], [*range(len(SENTENCES)), 0, 2**31 - 1]
    found = sample(text=tf.constant(texts), seed=tf.constant(seeds))
    found = [found[name].numpy().tolist() for name in ("translations", "scores")]
    assert found[0][0] == found[0][-2] != found[0][-1]  # independent of the rest of the request
    for index in (0, 3, -1):
        [expected] = sampling(seed=seeds[index]).translate_n([texts[index]])
        assert [text.decode() for text in found[0][index]] == [text for text, _ in expected]
        assert found[1][index] == pytest.approx([score for _, score in expected], rel=1e-4)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="seed must have one value for each text"
    ):
        sample(text=tf.constant(texts), seed=tf.constant([1]))


@pytest.mark.slow
def test_a_translator_that_samples_is_warmed_up_by_every_signature(exported_sampling):
    path = exported_sampling / "assets.extra" / "tf_serving_warmup_requests"
    logs = [PredictionLog.FromString(x.numpy()) for x in tf.data.TFRecordDataset(str(path))]
    requests = {log.predict_log.request.model_spec.signature_name: log for log in logs}
    assert requests.keys() == {"serving_default", "nbest", "score", "sample"}
    inputs = requests["sample"].predict_log.request.inputs
    assert tf.make_ndarray(inputs["seed"]).dtype == "int32"


@pytest.fixture
def quick(monkeypatch):
    """Skips the slow parts: these tests look only at folders."""

    def save(module, path, signatures, options):
        tf.io.gfile.makedirs(path)
        tf.io.gfile.GFile(f"{path}/saved_model.pb", "w").write("graph")

    monkeypatch.setattr(saved_model.tf.saved_model, "save", save)


def test_versions_count_on_from_the_highest(quick, translator, tmp_path):
    output = tmp_path / "new" / "en-de"
    assert export_saved_model(translator, output) == output / "1"
    assert export_saved_model(translator, output) == output / "2"
    for other in ("9", "12-old"):
        (output / other).mkdir()
    assert translator.export(str(output)) == output / "10"
    assert {p.name for p in output.iterdir()} == {"1", "2", "9", "10", "12-old"}
    assert (output / "1" / "saved_model.pb").read_text() == "graph"


def test_a_number_that_another_export_takes_meanwhile_is_skipped(
    quick, translator, tmp_path, monkeypatch
):
    rename, others = Path.rename, iter(["1", "2"])

    def rename_after_another(path, target):
        if number := next(others, None):
            (tmp_path / number).mkdir()
            (tmp_path / number / "saved_model.pb").write_text("theirs")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", rename_after_another)
    assert export_saved_model(translator, tmp_path) == tmp_path / "3"
    texts = [(tmp_path / number / "saved_model.pb").read_text() for number in "123"]
    assert texts == ["theirs", "theirs", "graph"]
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.skipif(sys.platform != "linux", reason="a descriptor's path is read from /proc")
def test_a_version_has_reached_the_disk_when_it_gets_its_number(
    quick, translator, tmp_path, monkeypatch
):
    synced = []  # paths at the time of `fsync`
    monkeypatch.setattr("os.fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    monkeypatch.setattr("secrets.token_hex", lambda size: "5eed")
    export_saved_model(translator, tmp_path)
    partial = f"{tmp_path}/.version.5eed.partial"
    extra = f"{partial}/assets.extra"
    inside = [partial, f"{partial}/saved_model.pb", extra, f"{extra}/tf_serving_warmup_requests"]
    assert sorted(synced[:-1]) == sorted(inside)
    assert synced[-1] == str(tmp_path)


def test_an_export_that_fails_leaves_nothing_behind(quick, translator, tmp_path, monkeypatch):
    def disk_is_full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    first = export_saved_model(translator, tmp_path)
    monkeypatch.setattr(saved_model, "_write_warmup_requests", disk_is_full)
    with pytest.raises(UserError, match=r"the model cannot be written: No space left on device$"):
        export_saved_model(translator, tmp_path)
    assert list(tmp_path.iterdir()) == [first]


@pytest.mark.skipif(sys.platform != "linux", reason="in /proc, nobody can write")
def test_a_folder_that_cannot_be_written_to_is_one_line(quick, translator):
    with pytest.raises(UserError, match=r"^/proc: the model cannot be written: [\w ]+$"):
        export_saved_model(translator, "/proc")


def test_a_folder_whose_name_is_not_utf_8_is_refused(translator, tmp_path):
    with pytest.raises(UserError, match="TensorFlow needs a name in UTF-8"):
        export_saved_model(translator, tmp_path / os.fsdecode(b"caf\xe9"))
    assert list(tmp_path.iterdir()) == []


def test_a_url_is_refused(translator, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"^gs://bucket/en-de must be a local folder"):
        translator.export("gs://bucket/en-de")
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_place_of_the_folder_or_above_it_is_refused_and_kept(translator, tmp_path):
    taken = tmp_path / "taken"
    taken.write_text("mine")
    for output in (taken, taken / "en-de"):
        refused = rf"^{output}( is not a folder|: cannot create the folder)"
        with pytest.raises(UserError, match=refused):
            export_saved_model(translator, output)
    assert taken.read_text() == "mine"


@pytest.fixture(scope="module")
def model_dir(translator, tmp_path_factory):
    model_dir = ModelDir(tmp_path_factory.mktemp("runs") / "en-de")
    model_dir.create_trained(translator.models[0], translator.tokenizer, "de", "")
    return model_dir


@pytest.mark.slow
def test_the_command_line_exports_with_the_options_and_draws_by_their_seed_at_each_call(
    model_dir, translator, tmp_path
):
    options = {"sample": True, "seed": 5, "beam_size": 2, "alpha": 1.5, "extra_length": 3}
    output = tmp_path / "export"
    flags = {"model_dir": model_dir.path, "format": "saved_model", "output": output, **options}
    process = run_process("export", **flags)
    assert (process.returncode, process.stdout.decode()) == (0, f"{output}/1\n")
    assert process.stderr == b""
    exported = tf.saved_model.load(str(output / "1")).signatures
    texts = 6 * SENTENCES  # more than a batch
    expected = Translator(translator.models[0], translator.tokenizer, **options).translate(texts)
    for _ in range(2):
        assert translate(exported, texts) == [one._asdict() for one in expected]


def test_the_command_line_refuses_in_one_line(model_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(ModelDir, "load_model", None)  # at once
    options = {"model_dir": model_dir.path, "format": "saved_model", "output": tmp_path}
    assert refused("export", **options, n_best=9) == "n_best must be in [1, beam_size=4]: found 9"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_our_own_server_answers_like_the_translator(exported, translator, expected):
    servable = SavedModelServable(exported)
    rows = servable.predict("serving_default", [(sentence,) for sentence in SENTENCES])
    assert [(row["translation"], row["score"]) for row in rows] == [
        (one["text"], one["score"]) for one in expected
    ]
    assert [len(found) for found in servable.translate_n(["A horse!", ""])] == [3, 1]
    assert servable.translate_n(NOT_UTF_8)[0][0].text == translator(NOT_UTF_8)[0]
    [row] = servable.predict("score", [("", "Nein")])
    assert row == {"score": NO_HYPOTHESIS}
    tokens = [len(translator.tokenizer.tokenize([text])[0]) for text in SENTENCES]
    assert servable.count_tokens(SENTENCES) == tokens
    assert servable.joins("serving_default")


@pytest.mark.slow
def test_our_own_server_knows_how_many_tokens_are_read_of_a_text(exported, translator):
    assert SavedModelServable(exported).max_tokens == translator.max_source_length - 1 == 29


def test_our_own_server_refuses_another_saved_model(tmp_path):
    module = tf.Module()
    module.double = tf.function(lambda x: 2 * x, [tf.TensorSpec([], tf.float32)])
    tf.saved_model.save(module, str(tmp_path), signatures=module.double)
    with pytest.raises(UserError, match="the SavedModel has no signature nbest"):
        SavedModelServable(tmp_path)


def test_an_export_of_an_earlier_version_is_refused(tmp_path):
    """SavedModels of 0.1.0 have all signatures, but no function that counts tokens."""
    module = tf.Module()
    function = tf.function(lambda text: text, [tf.TensorSpec([None], tf.string)])
    names = ("serving_default", "nbest", "score")
    signatures = dict.fromkeys(names, function.get_concrete_function())
    tf.saved_model.save(module, str(tmp_path), signatures)
    with pytest.raises(UserError, match=r"no function count_tokens: make it .* of this version"):
        SavedModelServable(tmp_path)


@pytest.mark.slow
def test_our_own_server_samples_by_seeds_and_else_joins_no_requests(exported_sampling):
    servable = SavedModelServable(exported_sampling)
    first, again, other = servable.predict("sample", [(7, "Yes"), (7, "Yes"), (8, "Yes")])
    assert first == again != other
    joins = {name: servable.joins(name) for name in ("serving_default", "nbest", "score", "sample")}
    assert joins == {"serving_default": False, "nbest": False, "score": True, "sample": True}


def test_a_model_for_several_languages_is_exported_for_one_and_else_nothing_is_made(tmp_path):
    tokenizer = SubwordTokenizer.train_from_sentences(BuiltinPairs("train", 300).sentences(), 340)
    tokenizer = tokenizer.with_languages(["de", "fr"])
    translator = Translator(lively_model(1, tokenizer.vocab_size), tokenizer)
    with pytest.raises(UserError, match="give target_lang, one of de, fr"):
        translator.export(tmp_path / "export")
    assert not (tmp_path / "export").exists()
