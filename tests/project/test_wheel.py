"""The wheel works on its own in an empty virtual environment, away from the checkout."""

import shutil
import subprocess
import sys
from zipfile import ZipFile

import pytest
from helpers import ROOT, users_environment

from keras_transformer.data.builtin.corpus import builtin_pairs

pytestmark = [pytest.mark.slow, pytest.mark.long]

TINY = (
    "--steps=4",
    "--vocab_size=340",
    "--d_model=32",
    "--d_ff=32",
    "--num_encoder_layers=1",
    "--num_decoder_layers=1",
    "--num_heads=2",
    "--tokens_per_batch=256",
    "--checkpoint_steps=2",
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder away from the checkout, and the `bin` of an environment that has only the wheel."""
    folder = tmp_path_factory.mktemp("elsewhere")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT], check=True
    )
    [wheel] = folder.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    bin_ = folder / "venv" / "bin"
    # Python compiles what it imports, a third of all modules.
    install = [bin_ / "python", "-m", "pip", "install", "-q", "--no-compile", wheel]
    subprocess.run(install, check=True)
    yield folder, bin_
    shutil.rmtree(folder)  # 2.5 GB, which pytest would keep for three runs


def run(installed, *arguments, stdin=b""):
    folder, bin_ = installed
    process = subprocess.run(
        [bin_ / "keras-transformer", *arguments],
        cwd=folder,
        env=users_environment(),
        input=stdin,
        capture_output=True,
    )
    assert process.returncode == 0, process.stderr.decode()
    # A model that is hardly trained repeats itself.
    usual = ("Translating with CTranslate2", "The translation of ")
    assert all(line.startswith(usual) for line in process.stderr.decode().splitlines())
    return process.stdout.decode()


def test_the_command_trains_judges_and_translates(installed):
    folder, bin_ = installed
    sides = ("The girls sleep.\nHe will help.\n", "Die Mädchen schlafen.\nEr wird helfen.\n")
    for language, text, column in zip(
        ("en", "de"), sides, zip(*builtin_pairs("train", 200), strict=True), strict=True
    ):
        (folder / f"test.{language}").write_text(text)
        (folder / f"train.{language}").write_text("".join(f"{line}\n" for line in column))
    training = ("--train_source=train.en", "--train_target=train.de")
    training += ("--valid_source=test.en", "--valid_target=test.de", "--model_dir=runs/tiny")
    assert "BLEU" in run(installed, "train", "--preset=tiny", *TINY, *training)
    files = ("--source=test.en", "--reference=test.de")
    assert "sacreBLEU" in run(installed, "evaluate", "--model_dir=runs/tiny", *files)
    lines = run(installed, "translate", "--model_dir=runs/tiny", stdin=sides[0].encode())
    assert lines.count("\n") == 2
    run(
        installed,
        "visualize",
        "--model_dir=runs/tiny",
        "--source=He will help.",
        "--kind=html",
        "--output=figures",
    )
    assert (folder / "figures" / "attention.html").read_text().startswith("<!")
    module = [bin_ / "python", "-m", "keras_transformer", "--version"]
    assert subprocess.run(module, capture_output=True, cwd=folder, check=True).stdout


def test_only_what_is_imported_is_installed(installed):
    _, bin_ = installed
    [packages] = (bin_.parent / "lib").glob("python3*/site-packages")
    optional = {"keras_nlp", "keras_hub", "tensorflow_datasets", "pytest"}
    assert not optional & {path.name for path in packages.iterdir()}


def test_the_wheel_has_the_files_of_the_package_and_no_others(installed):
    """Not those, for example, of a version that was built in this folder before."""
    folder, _ = installed
    [wheel] = folder.glob("*.whl")
    found = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    files = (path for path in (ROOT / "keras_transformer").rglob("*") if path.is_file())
    expected = {str(path.relative_to(ROOT)) for path in files if "__pycache__" not in path.parts}
    assert found == expected
    assert {"keras_transformer/py.typed", "keras_transformer/__init__.pyi"} <= found  # its types
