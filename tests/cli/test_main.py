"""The command `keras-transformer`: help at once, mistakes in one line, every option a flag."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from importlib.metadata import version

import pytest
from absl import flags
from command_lines import module_of, own_flags, run_process
from helpers import ROOT, run_python

import keras_transformer as kt
from keras_transformer.cli.command import Command
from keras_transformer.cli.main import COMMANDS, _run
from keras_transformer.options import ParsingOptions, SearchOptions, TrainingOptions

WHAT_HELP_LOADS = """
import contextlib, io, json, sys
from keras_transformer.cli.main import main
output = io.StringIO()
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(output):
    main(sys.argv[1:])
loaded = [name for name in ("tensorflow", "keras", "numpy") if name in sys.modules]
print(json.dumps([output.getvalue(), loaded]))
"""
WHAT_FLAGS_SAY = """
import json, sys
from absl import flags
from keras_transformer.cli import corpus, main
from keras_transformer.cli.command import Command
corpus.define_flags()
names = "source", "target", "max_words", "max_ratio"
main.run(
    Command(lambda: print(json.dumps([flags.FLAGS[name].value for name in names])), ""),
    "test",
    sys.argv[1:],
)
"""


def help_of(*arguments):
    """The help, and which slow packages printing it has loaded."""
    return json.loads(run_python(WHAT_HELP_LOADS, *arguments))


def flags_in(text):
    lines = (line.strip() for line in text.splitlines() if line.startswith("  --"))
    return [line.removeprefix("--").removeprefix("[no]").partition("=")[0] for line in lines]


@pytest.mark.parametrize("arguments", [[], ["--help"], ["help"]])
def test_the_overview_lists_every_command(arguments):
    text, loaded = help_of(*arguments)
    assert all(f"  {name} " in text for name in COMMANDS)
    assert "--version" in text
    assert loaded == []


@pytest.mark.parametrize("command", COMMANDS)
def test_help_loads_no_backend_and_explains_every_flag(command):
    text, loaded = help_of(command, "--help")
    assert loaded == []
    assert text.startswith(f"usage: keras-transformer {command} [--flag=value ...]\n")
    assert f"keras-transformer {command}" in text.partition("usage")[2]
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("  --"):
            assert lines[number + 1].startswith("      "), f"{line} has no help"
        assert len(line) <= 100, "a docstring with `\\` at the end of a line must be raw"


def test_help_with_a_command_is_the_help_of_the_command():
    assert help_of("help", "cost") == help_of("cost", "--help")


def test_help_of_training_has_its_flags_in_groups():
    text, _ = help_of("train", "--help")
    headings = [line[:-1] for line in text.splitlines() if line[:1].isalpha() and line[-1:] == ":"]
    assert headings == [
        "Common",
        "Data",
        "Model",
        "Training",
        "Checkpoints and validation",
        "Devices",
        "Parsing",
    ]
    assert flags_in(text)[:4] == ["model_dir", "preset", "task", "train_source"]
    assert "(default: 4096, or the preset's)" in " ".join(text.split())


def test_help_shows_the_defaults_of_parsers():
    text = " ".join(help_of("parse", "--help")[0].split())
    assert "1 is greedy decoding (default: 21)" in text
    assert "those of its source (default: 300, or 0 for words)" in text
    text = " ".join(help_of("evaluate", "--help")[0].split())
    assert "1 is greedy decoding (default: 4; of parsers 21)" in text


def test_help_of_a_repeated_flag_has_no_words_of_absl():
    text = " ".join(help_of("serve", "--help")[0].split())
    assert "name and path of a model to serve; may be repeated --host" in text
    assert "such as https://a.org --allowed_hosts" in text, "an empty default is none"


def test_helpfull_adds_the_flags_of_absl():
    short, _ = help_of("train", "--help")
    full, _ = help_of("train", "--helpfull")
    assert "verbosity" not in flags_in(short)
    assert "--flagfile=FILE" in short
    assert {*flags_in(short), "verbosity"} <= {*flags_in(full)}


@pytest.mark.parametrize(
    ("command", "records"),
    [
        ("train", [kt.TransformerConfig, TrainingOptions, ParsingOptions]),
        ("translate", [SearchOptions]),
        ("evaluate", [SearchOptions]),
    ],
)
def test_every_field_is_a_flag_listed_once(command, records):
    listed = flags_in(help_of(command, "--help")[0])
    assert len(listed) == len(set(listed))
    fields = {field.name for record in records for field in dataclasses.fields(record)}
    only_in_python = {"pad_id", "start_id", "end_id", "constraint"}
    assert fields - only_in_python <= set(listed)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_list_may_be_given_in_several_flags(command):
    before = set(flags.FLAGS)
    with own_flags():
        module_of(command).define_flags()
        for name in set(flags.FLAGS) - before:
            flag = flags.FLAGS[name]
            if isinstance(flag.parser, flags.ListParser):
                flag.parse("a,b")
                flag.parse("c")
                assert flag.value == ["a", "b", "c"], name


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["trian"],
            "keras-transformer: unknown command 'trian': use train; see keras-transformer --help",
        ),
        (["x"], "keras-transformer: unknown command 'x': use one of train, "),
        (
            ["train", "--trian_source=x"],
            "keras-transformer train: unknown flag --trian_source; did you mean --train_source?",
        ),
        (
            ["translate"],
            "keras-transformer translate: --model_dir is required; "
            "see keras-transformer translate --help",
        ),
        (
            ["train", "--steps=1e3"],
            "keras-transformer train: flag --steps=1e3 must be an integer",
        ),
        (["train", "--dropout=x"], "keras-transformer train: flag --dropout=x must be a number"),
        (
            ["translate", "--patience=non"],
            "keras-transformer translate: flag --patience=non must be a number or none",
        ),
        (
            ["translate", "--length_penalty=plain"],
            "keras-transformer translate: flag --length_penalty=plain: value should be one of "
            "<power|gnmt>",
        ),
        (
            ["train", "--report=x"],
            "keras-transformer train: flag --report=x must be true or false",
        ),
        (["train", "--best_by=luck"], "keras-transformer train: flag --best_by=luck: "),
        (
            ["train", "--noreport=3"],
            "keras-transformer train: --noreport=3 does not take an argument",
        ),
        (["cost", "base"], "keras-transformer cost: 'base' is not a flag; see "),
        # Not in colour, as a terminal would show it.
        (
            ["train", "--steps=\x1b[31mred"],
            "keras-transformer train: flag --steps= [31mred must be",
        ),
    ],
)
def test_a_mistyped_command_is_one_line_and_status_2(arguments, line):
    process = run_process(*arguments)
    assert process.returncode == 2
    assert process.stdout == b""
    [printed] = process.stderr.decode().splitlines()
    assert printed.startswith(line)


def test_a_tilde_in_the_value_of_a_flag_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "flags").write_text("--steps=many\n")
    [line] = run_process("train", "--flagfile=~/flags").stderr.decode().splitlines()
    assert line.startswith("keras-transformer train: flag --steps=many must be an integer")


def test_the_command_line_replaces_what_a_flag_file_says(tmp_path):
    (tmp_path / "flags").write_text(
        "--source=a\n--source=b\n--target=c\n--max_words=7\n--max_ratio=2\n"
    )
    file = f"--flagfile={tmp_path / 'flags'}"
    for given in (
        [file, "--source=d,e", "--max_words=8"],
        ["--source", "d,e", "--max_words=8", file],
    ):
        found = run_python(WHAT_FLAGS_SAY, *given)
        assert json.loads(found) == [["d", "e"], ["c"], 8, 2.0]


def test_a_flag_file_that_is_not_utf_8_is_one_line(tmp_path):
    (tmp_path / "flags").write_bytes(b"--preset=caf\xe9\n")
    process = run_process("train", flagfile=tmp_path / "flags")
    assert process.returncode == 2
    [line] = process.stderr.decode().splitlines()
    assert line.startswith("keras-transformer train: the file of --flagfile is not UTF-8 text: ")
    (tmp_path / "flags").write_text("--preset=tiny\n", encoding="utf-16")  # as PowerShell does
    [line] = run_process("train", flagfile=tmp_path / "flags").stderr.decode().splitlines()
    assert "is not UTF-8 text but UTF-16: convert it" in line


def test_a_pipe_of_flags_is_read_once():
    process = run_process("translate", "--flagfile=/dev/stdin", stdin=b"--bem_size=2\n")
    [line] = process.stderr.decode().splitlines()
    assert line.endswith("unknown flag --bem_size; did you mean --beam_size?")


@pytest.mark.parametrize("arguments", [["--version"], ["train", "--help"]])
def test_output_that_cannot_be_written_is_no_traceback(arguments):
    """A short output is written when the command ends, a long one earlier."""

    def ended(output):
        command = [sys.executable, "-m", "keras_transformer", *arguments]
        env = {**os.environ, "PYTHONUNBUFFERED": ""}
        process = subprocess.run(
            command, cwd=ROOT, env=env, stdout=output, stderr=subprocess.PIPE, text=True
        )
        os.close(output)
        return process.returncode, process.stderr.splitlines()

    reader, writer = os.pipe()
    os.close(reader)  # as `| head` does once it has its lines
    assert ended(writer) == (1, [])
    if os.path.exists("/dev/full"):
        status, [line] = ended(os.open("/dev/full", os.O_WRONLY))
        assert status == 2
        assert line.endswith(": input or output: No space left on device")


def test_text_that_the_terminal_cannot_show_is_escaped():
    script = (
        "import os, sys\n"
        "from keras_transformer.cli.process import print_any_text\n"
        "print_any_text()\n"
        "print(os.fsdecode(b'caf\\xe9'))"
    )
    assert run_python(script) == "caf\\udce9\n"


def test_a_command_that_is_terminated_leaves_nothing_half_written(tmp_path):
    script = """
import os, signal, sys
from keras_transformer.cli.command import Command
from keras_transformer.cli.main import run
from keras_transformer.files import whole_folder

def export():
    with whole_folder(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGTERM)

run(Command(export, None, needs_tensorflow=bool), "keras-transformer export", [])
"""
    process = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "export"], cwd=ROOT, capture_output=True
    )
    assert (process.returncode, process.stderr) == (143, b"keras-transformer export: terminated\n")
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def out_of_memory():
    """TensorFlow's error, for which it waits ten seconds."""
    import tensorflow as tf

    @tf.function
    def ones(size):
        return tf.reduce_sum(tf.fill([size], 1.0))

    with pytest.raises(tf.errors.ResourceExhaustedError) as error:
        ones(2**45 * tf.ones((), tf.int64))
    return error.value


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "advice"),
    [
        ([], ""),
        (["tokens_per_batch"], " (a smaller --tokens_per_batch needs less)"),
        (
            ["tokens_per_batch", "num_microbatches"],
            " (a smaller --tokens_per_batch or a larger --num_microbatches needs less)",
        ),
    ],
)
def test_too_little_memory_is_one_line_that_says_for_what(
    capsys, monkeypatch, out_of_memory, names, advice
):
    def main():
        raise out_of_memory

    monkeypatch.setattr(flags, "FLAGS", names)
    command = Command(main, None)
    with pytest.raises(SystemExit) as ended:
        _run(command, "keras-transformer train", [])
    assert ended.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    start = f"keras-transformer train: not enough memory{advice}: OOM when allocating tensor with"
    assert line.startswith(f"{start} shape[35184372088832]")


def test_a_command_refuses_another_backend_of_keras():
    process = subprocess.run(
        [sys.executable, "-m", "keras_transformer", "cost"],
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": "jax"},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 2
    assert process.stderr == (
        "keras-transformer cost: this command runs only on TensorFlow, not on jax: "
        "set KERAS_BACKEND=tensorflow\n"
    )


IMPORT_TENSORFLOW = """
import gc, json, os, sys
from keras_transformer.cli import quiet
from keras_transformer.machine import gpu

quiet.import_tensorflow()
collected = {"enabled": gc.isenabled(), "frozen": gc.get_freeze_count()}
from keras import config
settings = [config.floatx(), config.image_data_format(), config.backend()]
print(json.dumps({"collected": collected, "settings": settings}))

gpu._GPU_FILES = sys.argv[1] + "/nvidia[0-9]*"
import tensorflow as tf
tf.config.list_physical_devices = lambda kind=None: []
for visible in (None, "0", "", "-1"):
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    if visible is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
    print("visible:", visible, file=sys.stderr)
    quiet.import_tensorflow()
"""


@pytest.fixture(scope="module")
def importing(tmp_path_factory):
    """The output of a process that imports TensorFlow as commands do, under a user's keras.json."""
    folder = tmp_path_factory.mktemp("home")
    configured = {"floatx": "float16", "image_data_format": "channels_first", "backend": "torch"}
    (folder / "keras.json").write_text(json.dumps(configured))
    (folder / "nvidia0").touch()
    users = {"KERAS_HOME": str(folder), "KERAS_BACKEND": "", "TF_USE_LEGACY_KERAS": "1"}
    env = {**os.environ, **users, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", IMPORT_TENSORFLOW, folder]
    process = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    return json.loads(process.stdout), process.stderr


@pytest.mark.slow
def test_a_command_has_the_defaults_of_keras_whatever_the_user_has_configured(importing):
    found, _ = importing
    assert found["settings"] == ["float32", "channels_last", "tensorflow"]


@pytest.mark.slow
def test_garbage_is_collected_once_tensorflow_is_imported(importing):
    found, _ = importing
    assert found["collected"]["enabled"]
    assert found["collected"]["frozen"] > 100_000


@pytest.mark.slow
def test_a_gpu_without_its_libraries_is_named_once_unless_it_is_hidden(importing):
    _, said = importing
    expected = "pip install 'tensorflow[and-cuda]==2."
    counts = {
        visible: text.count(expected)
        for visible, text in re.findall(r"visible: (.*)\n((?:(?!visible:).*\n)*)", said)
    }
    assert counts == {"None": 1, "0": 1, "": 0, "-1": 0}


def test_the_version_stands_in_one_place():
    process = run_process("--version")
    assert process.stdout.decode() == f"keras-transformer {kt.__version__}\n"
    assert version("keras-transformer") == kt.__version__


@pytest.mark.parametrize("script", ["train.py", "evaluate.py"])
def test_the_scripts_of_a_checkout_are_the_commands(script):
    process = run_process(script, "--help")
    assert process.returncode == 0
    command = script.removesuffix(".py")
    assert process.stdout.decode() == help_of(command, "--help")[0]


def test_importing_the_package_loads_nothing_and_sets_nothing():
    script = (
        "import os, sys; before = dict(os.environ)\n"
        "import keras_transformer\n"
        "assert dict(os.environ) == before\n"
        "assert not {'keras', 'tensorflow', 'numpy', 'jax'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_every_public_name_is_there():
    for name in kt.__all__:
        assert getattr(kt, name) is not None
    assert set(kt.__all__) <= set(dir(kt))
