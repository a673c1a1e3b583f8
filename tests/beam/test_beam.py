"""Text translated by Apache Beam: each line once and in its place, whatever it contains."""

import bz2
import contextlib
import functools
import gzip
import json
import lzma
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf
from command_lines import arguments, refused, run_arguments, run_process
from helpers import ROOT, lively_model

from keras_transformer.data import BuiltinPairs
from keras_transformer.errors import UserError
from keras_transformer.text import SubwordTokenizer
from keras_transformer.training import ModelDir
from keras_transformer.translator import Translator

beam = pytest.importorskip("apache_beam", reason="the extra `beam` is not installed")
from apache_beam.options.pipeline_options import PipelineOptions  # noqa: E402
from apache_beam.testing.util import assert_that, equal_to  # noqa: E402

from keras_transformer.beam import Failure, TranslateFiles, TranslateText  # noqa: E402
from keras_transformer.beam.loaded_model import LoadedModel, find_saved_model  # noqa: E402

LINES = [
    b"The girls sleep.",
    b"",
    b"A horse!\r",
    b"caf\xe9 \xff",
    b"a\x00b",
    b"house " * 3000,
    b"Yes",
]
# Runs in this process; DirectRunner would first look for another program, Prism.
IN_PROCESS = ["--runner=FnApiRunner"]
TWO_PROCESSES = {"direct_num_workers": 2, "direct_running_mode": "multi_processing"}


class Shouting(tf.Module):
    """Stands for an exported model: upper case, and an error at each text with `fail` in it."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def translate(self, text):
        failing = tf.strings.regex_replace(text, "fail", "") != text
        with tf.control_dependencies([tf.debugging.Assert(~tf.reduce_any(failing), ["no luck"])]):
            return {"translation": tf.strings.upper(text)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def count_tokens(self, text):
        return tf.strings.split(text).row_lengths()


def export_shouting(path):
    module = Shouting()
    tf.saved_model.save(module, str(path), signatures=module.translate)
    return path


@pytest.fixture(scope="module")
def shouting(tmp_path_factory):
    return export_shouting(tmp_path_factory.mktemp("export") / "1")


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    """A model_dir whose model translates every sentence differently."""
    tokenizer = SubwordTokenizer.train_from_sentences(BuiltinPairs("train", 300).sentences(), 340)
    path = tmp_path_factory.mktemp("runs") / "en-de"
    model = lively_model(1, tokenizer.vocab_size)
    ModelDir(path).create_trained(model, tokenizer, "de", "made by a test")
    return path


@pytest.fixture(scope="module")
def exported(model_dir, tmp_path_factory):
    found = ModelDir(model_dir)
    translator = Translator(found.load_model(), found.load_tokenizer(), extra_length=5)
    return translator.export(tmp_path_factory.mktemp("export") / "en-de").parent


def run(build, *flags):
    """Runs a pipeline in this process, and returns its counters."""
    with beam.Pipeline(options=PipelineOptions([*IN_PROCESS, *flags])) as pipeline:
        build(pipeline)
    counters = pipeline.result.metrics().query()["counters"]
    ours = [counter for counter in counters if counter.key.metric.namespace == "keras_transformer"]
    return {counter.key.metric.name: counter.committed for counter in ours}


def translate(elements, saved_model, expected, failures=(), flags=(), **options):
    """Translates elements of a PCollection, compares both results, and returns the counters."""

    def build(pipeline):
        texts = pipeline | beam.Create(elements)
        translated, failed = texts | TranslateText(saved_model, **options)
        assert_that(translated, equal_to(list(expected)), label="translated")
        assert_that(failed | beam.Map(cut), equal_to(list(failures)), label="failed")

    return run(build, *flags)


def cut(failure):
    """Cuts an error message after TensorFlow's reason."""
    assert "\n" not in failure.reason
    return failure._replace(reason="no luck" if "no luck" in failure.reason else failure.reason)


def files_written(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_texts_come_out_as_pairs_with_their_translations(shouting):
    counters = translate(["a b", b"c"], shouting, [("a b", "A B"), (b"c", "C")])
    assert counters == {"lines": 2, "tokens": 3}


def test_pairs_of_a_key_and_a_text_keep_their_keys(shouting):
    translate([(1, "a"), ("x", b"b"), (1, "a")], shouting, [(1, "A"), ("x", "B"), (1, "A")])


@pytest.mark.parametrize("lines_at_once", [1, 3, 1024])
def test_only_the_failing_text_of_a_batch_fails(shouting, lines_at_once):
    texts = [(n, f"text {n}" if n % 4 else f"fail {n}") for n in range(10)]
    counters = translate(
        texts,
        shouting,
        [(n, text.upper()) for n, text in texts if n % 4],
        [Failure(n, text, "no luck") for n, text in texts if not n % 4],
        lines_at_once=lines_at_once,
    )
    assert counters == {"lines": 10, "tokens": 14, "failures": 3}


def test_a_process_loads_the_model_once_for_all_its_threads(shouting, monkeypatch):
    loaded = []
    load = LoadedModel.__init__

    def count(self, path):
        loaded.append(path)
        load(self, path)

    monkeypatch.setattr(LoadedModel, "__init__", count)
    texts = [f"text {n}" for n in range(100)]
    flags = arguments({"direct_num_workers": 3, "direct_running_mode": "multi_threading"})

    def build(pipeline):
        spread = pipeline | beam.Create(texts) | beam.Reshuffle()
        translated, _ = spread | TranslateText(shouting, lines_at_once=10)
        assert_that(translated, equal_to([(text, text.upper()) for text in texts]))

    assert run(build, *flags)["lines"] == 100
    assert loaded == [str(shouting)]


def test_a_bundle_that_runs_twice_writes_the_same_files(shouting, tmp_path, monkeypatch):
    (tmp_path / "in").write_text("one\nfail\nthree\n")
    appeared = []
    rename = beam.io.filesystems.FileSystems.rename

    def note(partial, path):
        appeared.extend(path)
        rename(partial, path)

    monkeypatch.setattr(beam.io.filesystems.FileSystems, "rename", note)
    run(
        lambda pipeline: pipeline | TranslateFiles(shouting, f"{tmp_path}/in", f"{tmp_path}/out"),
        "--direct_runner_bundle_repeat=1",
    )
    outputs = [f"{tmp_path}/out-00000-of-00001", f"{tmp_path}/out-failed.jsonl"]
    assert sorted(appeared) == sorted(2 * outputs)
    assert sorted(map(str, tmp_path.iterdir())) == [f"{tmp_path}/in", *outputs]
    assert (tmp_path / "out-00000-of-00001").read_text() == "ONE\n\nTHREE\n"
    assert len((tmp_path / "out-failed.jsonl").read_text().splitlines()) == 1


def test_an_element_that_is_no_text_ends_the_pipeline(shouting):
    with pytest.raises(
        Exception, match="elements must be texts, or pairs of a key and a text: found 7"
    ):
        translate([7], shouting, [])


def test_each_file_becomes_a_file_of_as_many_lines_compressed_alike(shouting, tmp_path):
    write = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, "": bytes}
    contents = {
        "a.txt": b"one\r\ntwo\n\nfour, without an end",
        "b.txt": b"",
        "c.txt.gz": "ein\u2028e Zeile\x0b\x85\nzwei\n".encode(),
        "d.txt.bz2": b"\n\n",
        "e.txt.xz": b"x\n" * 2500,
    }
    for name, content in contents.items():
        suffix = os.path.splitext(name)[1].replace(".txt", "")
        (tmp_path / name).write_bytes(write[suffix](content))
    output = tmp_path / "out"
    counters = run(
        lambda pipeline: pipeline | TranslateFiles(shouting, f"{tmp_path}/*.txt*", f"{output}/de")
    )
    read = {".gz": gzip.decompress, ".bz2": bz2.decompress, ".xz": lzma.decompress}
    written = {
        name: read.get(os.path.splitext(name)[1], bytes)(content)
        for name, content in files_written(output).items()
    }
    assert written == {
        "de-00000-of-00005": b"ONE\nTWO\n\nFOUR, WITHOUT AN END\n",
        "de-00001-of-00005": b"",
        "de-00002-of-00005.gz": b"EIN E ZEILE\nZWEI\n",
        "de-00003-of-00005.bz2": b"\n\n",
        "de-00004-of-00005.xz": b"X\n" * 2500,
    }
    assert counters["lines"] == 4 + 0 + 2 + 2 + 2500


def test_a_failed_line_becomes_empty_and_is_listed_in_a_file(shouting, tmp_path):
    (tmp_path / "in.1").write_bytes(b"one\nfail \xff\nthree\n")
    (tmp_path / "in.2").write_bytes(b"\nfail\n")
    counters = run(
        lambda pipeline: pipeline | TranslateFiles(shouting, f"{tmp_path}/in.*", f"{tmp_path}/out")
    )
    written = {name: text for name, text in files_written(tmp_path).items() if "out" in name}
    failed = [json.loads(line) for line in written.pop("out-failed.jsonl").splitlines()]
    assert written == {"out-00000-of-00002": b"ONE\n\nTHREE\n", "out-00001-of-00002": b"\n\n"}
    assert [{**failure, "reason": "no luck" in failure["reason"]} for failure in failed] == [
        {"file": f"{tmp_path}/in.1", "line": 2, "text": "fail \ufffd", "reason": True},
        {"file": f"{tmp_path}/in.2", "line": 2, "text": "fail", "reason": True},
    ]
    assert counters["failures"] == 2


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
def test_a_compressed_file_that_is_cut_off_ends_the_job(shouting, tmp_path, suffix):
    compress = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}[suffix]
    whole = compress(b"".join(b"line %d\n" % number for number in range(1000)))
    path = tmp_path / f"in{suffix}"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(Exception, match=f"{path}:[0-9]+: cannot read the rest of the file"):
        run(lambda pipeline: pipeline | TranslateFiles(shouting, str(path), f"{tmp_path}/out"))
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_the_newest_version_of_an_export_is_found(shouting, tmp_path):
    for version in ("2", "10"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "saved_model.pb").write_bytes(
            (shouting / "saved_model.pb").read_bytes()
        )
    assert find_saved_model(tmp_path) == str(tmp_path / "10")
    assert find_saved_model(tmp_path / "2") == str(tmp_path / "2")


def test_another_saved_model_is_refused_before_the_job_starts(tmp_path):
    with pytest.raises(UserError, match="missing: cannot read a SavedModel of `keras-transformer"):
        TranslateText(tmp_path / "missing")
    with pytest.raises(UserError, match="cannot read a SavedModel of `keras-transformer"):
        TranslateText(tmp_path)
    (tmp_path / "saved_model.pb").write_bytes(b"\xff\xff")
    with pytest.raises(UserError, match="cannot read a SavedModel of `keras-transformer"):
        TranslateText(tmp_path)
    module = tf.Module()
    module.double = tf.function(lambda x: {"y": 2 * x}, [tf.TensorSpec([], tf.int32, "x")])
    tf.saved_model.save(module, str(tmp_path / "1"), signatures=module.double)
    with pytest.raises(UserError, match="must map `text` to `translation`: found x to y"):
        TranslateText(tmp_path / "1")


def test_outputs_and_inputs_are_looked_at_before_the_job_starts(shouting, tmp_path):
    (tmp_path / "in").write_text("one\n")
    (tmp_path / "in.zst").write_text("")
    (tmp_path / "out-00000-of-00009").write_text("")
    make = functools.partial(TranslateFiles, shouting)
    with pytest.raises(UserError, match="none: no file has this name or matches"):
        make(f"{tmp_path}/none", f"{tmp_path}/de")
    with pytest.raises(UserError, match=f"{tmp_path}.* is a folder: give its files"):
        make(str(tmp_path), f"{tmp_path}/de")
    with pytest.raises(
        UserError, match=r"in.zst: this compression is not supported: use plain text"
    ):
        make(f"{tmp_path}/in*", f"{tmp_path}/de")
    with pytest.raises(UserError, match=r"out-00000.* exists already: choose another prefix"):
        make(f"{tmp_path}/in", f"{tmp_path}/out")
    with pytest.raises(UserError, match="in/de: cannot write files there: "):
        make(f"{tmp_path}/in", f"{tmp_path}/in/de")
    for prefix in ("", f"{tmp_path}/", f"{tmp_path}/*"):
        with pytest.raises(UserError, match="the files to write need a prefix, such as out/de"):
            make(f"{tmp_path}/in", prefix)
    with pytest.raises(UserError, match="lines_at_once must be from 1 to "):
        make(f"{tmp_path}/in", f"{tmp_path}/de", lines_at_once=0)


def test_a_working_folder_whose_name_beam_takes_for_a_pattern_is_refused(
    shouting, tmp_path, monkeypatch
):
    folder = tmp_path / "old [1]"
    folder.mkdir()
    (folder / "in").write_text("one\n")
    monkeypatch.chdir(folder)
    with pytest.raises(UserError, match=r"old \[1\]: Beam reads .* of this working folder as wild"):
        TranslateFiles(shouting, "in", f"{tmp_path}/de")
    (tmp_path / "in").write_text("one\n")
    with pytest.raises(UserError, match=r"old \[1\]: Beam reads .* of this working folder as wild"):
        TranslateFiles(shouting, f"{tmp_path}/in", "de")
    assert [path.name for path in folder.iterdir()] == ["in"]


def job(shouting, folder, **others):
    return {
        "runner": "FnApiRunner",
        "saved_model": shouting,
        "input": f"{folder}/in*",
        "output": f"{folder}/out",
        **others,
    }


def test_the_command_takes_flags_of_beam_among_its_own(shouting, tmp_path):
    (tmp_path / "in").write_text("one\nfail\n")
    flags = arguments(job(shouting, tmp_path))
    process = run_process(
        "translate", "--direct_num_workers", "1", *flags, "--", "--known_to_the_runner=1"
    )
    assert process.stderr == b""
    report = f"lines: 2, tokens: 1, failures: 1, in {tmp_path}/out-failed.jsonl\n"
    assert process.stdout.decode() == report
    assert (tmp_path / "out-00000-of-00001").read_text() == "ONE\n\n"


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["--inptu=x"], "unknown flag --inptu; did you mean --input?"),
        (["--direct_num_worker=2"], "unknown flag --direct_num_worker; did you mean --direct_num_"),
        (["--direct_num_workers=two"], "argument --direct_num_workers: invalid int value: 'two'"),
        (["extra"], "'extra' is not a flag"),
        (["--beam_size=2"], "--beam_size has no effect with --runner, since the exported"),
        (["--model_dir=x"], "--model_dir has no effect with --runner"),
        (["--scores"], "--scores has no effect with --runner"),
        (["--runner=BeanRunner"], "--runner=BeanRunner is not a runner of Apache Beam: "),
        (["--runner=DataflowRunner"], "--runner=DataflowRunner: "),
        (["--output="], "--output is missing or empty: give it a value"),
    ],
)
def test_a_mistyped_flag_beside_a_runner_is_one_line(shouting, tmp_path, typed, said):
    (tmp_path / "in").write_text("one\n")
    with pytest.raises(UserError) as error:
        run_arguments("translate", [*arguments(job(shouting, tmp_path)), *typed])
    assert str(error.value).startswith(said)
    assert files_written(tmp_path) == {"in": b"one\n"}


def test_a_file_that_is_cut_off_ends_the_command_with_one_line(shouting, tmp_path):
    (tmp_path / "in.gz").write_bytes(gzip.compress(b"one\n" * 1000)[:20])
    with pytest.raises(UserError) as error:
        run_arguments("translate", arguments(job(shouting, tmp_path)))
    assert str(error.value).startswith(f"{tmp_path}/in.gz:1: cannot read the rest of the file: ")
    assert "while running" not in str(error.value)


def test_flags_for_files_are_refused_without_a_runner(model_dir):
    message = refused("translate", model_dir=model_dir, saved_model="x")
    assert message == "--saved_model has no effect without --runner: leave it out"


@pytest.mark.slow
def test_the_translations_are_those_of_the_translator(exported, model_dir):
    found = ModelDir(model_dir)
    translator = Translator(found.load_model(), found.load_tokenizer(), extra_length=5)
    expected = list(enumerate(translator(LINES)))
    assert len({text for _, text in expected}) == len(LINES)
    counters = translate(list(enumerate(LINES)), exported, expected, lines_at_once=3)
    assert counters["lines"] == len(LINES) and counters["tokens"] > 3000


@pytest.mark.slow
def test_two_worker_processes_write_what_translate_writes(exported, model_dir, tmp_path):
    sentences = [f"{sentence}\n".encode() for sentence in BuiltinPairs("test", 60).sentences()]
    shards = {"in-0": b"\n".join(LINES), "in-1.gz": b"".join(sentences), "in-2": b""}
    for name, text in shards.items():
        compressed = gzip.compress(text) if name.endswith(".gz") else text
        (tmp_path / name).write_bytes(compressed)
    process = run_process("translate", **job(exported, tmp_path, lines_at_once=16), **TWO_PROCESSES)
    assert process.returncode == 0, process.stderr.decode()
    total = len(LINES) + len(sentences)
    assert process.stdout.decode().startswith(f"lines: {total}, tokens: ")
    written = {name: text for name, text in files_written(tmp_path).items() if "out" in name}
    written["out-00001-of-00003.gz"] = gzip.decompress(written["out-00001-of-00003.gz"])
    # As the exported model: with TensorFlow, and without copies of placeholders.
    alone_flags = {"engine": "tensorflow", "placeholders": False, "extra_length": 5}
    alone = [
        run_process("translate", model_dir=model_dir, **alone_flags, stdin=text).stdout
        for text in shards.values()
    ]
    assert list(written.values()) == alone
    assert len({*alone[0].split(b"\n")}) == len(LINES)


@pytest.mark.slow
def test_a_job_whose_worker_is_killed_leaves_nothing_and_can_run_again(shouting, tmp_path):
    """DirectRunner does not replace a worker that has died."""
    os.mkfifo(tmp_path / "in")
    options = arguments({**job(shouting, tmp_path), **TWO_PROCESSES})
    command = [sys.executable, "-m", "keras_transformer", "translate", *options]
    with (
        subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as process,
        open(tmp_path / "in", "w") as lines,  # waits for a worker that reads
    ):
        lines.write("one\n")
        lines.flush()
        os.kill(reader_of(tmp_path / "in"), signal.SIGKILL)
        assert process.wait(timeout=300) != 0
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    (tmp_path / "in").unlink()
    (tmp_path / "in").write_text("one\ntwo\n")
    again = run_process("translate", *options)
    assert again.stdout == b"lines: 2, tokens: 2, failures: 0\n", again.stderr.decode()
    assert (tmp_path / "out-00000-of-00001").read_text() == "ONE\nTWO\n"


def reader_of(path):
    """Another process that has opened a file."""
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            process = int(descriptor.parts[2])
            if os.readlink(descriptor) == str(path) and process != os.getpid():
                return process
    raise AssertionError(f"nobody reads {path}")
