"""Runs tests with the oldest and the newest libraries that pyproject.toml allows.

`make test-versions` calls it; `python tests/support/check_versions.py oldest` checks one side
only. It makes an environment of 2.5 GB in build/versions/, and removes it at the end.
"""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Of each library, the oldest and the newest version in which the tests below have passed. The
# ranges in pyproject.toml begin and end with these (`tests/project/test_requirements.py`).
VERSIONS = {
    "tensorflow": ("2.20.0", "2.21.0"),
    "keras": ("3.14.0", "3.15.1"),
    "tensorflow-text": ("2.20.0", "2.21.1"),
    "tensorflow-serving-api": ("2.20.0", "2.21.0"),
    "tensorboard": ("2.20.0", "2.21.0"),
    "sentencepiece": ("0.2.2", "0.2.3"),
    "sentencex": ("1.0.32", "1.0.32"),
    "sacrebleu": ("2.5.0", "2.6.0"),
    "sacremoses": ("0.1.0", "0.2.0"),
    "absl-py": ("2.0.0", "2.5.1"),
    "lazy_loader": ("0.6", "0.6"),
    "markdown-it-py": ("3.0.0", "4.3.0"),
    "matplotlib": ("3.9.0", "3.11.2"),
    "ctranslate2": ("4.6.0", "4.8.5"),
    "h11": ("0.16.0", "0.16.0"),
    "prometheus_client": ("0.20.0", "0.26.0"),
    "starlette": ("1.0.0", "1.10.0"),
    "uvicorn": ("0.40.0", "0.54.0"),
}
# They come with the libraries above, which set their ranges.
INDIRECT = {"numpy": ("1.26.4", "2.4.6"), "h5py": ("3.11.0", "3.14.0")}
TOOLS = ("hypothesis==6.*", "httpx", "httpx2==2.*", "libretranslatepy==2.*", "pytest==9.*")
# Files and folders of tests/.
TESTS = (
    "layers",
    "fast",
    "text",
    "search",
    "serving",
    "ctranslate2",
    "export",
    "importers",
    "evaluation",
    "report",
    "documents",
    "data/test_batches.py",
    "training/test_keras_fit.py",
    "training/test_step.py",
    "training/test_training.py",
    "training/test_checkpoints.py",
    "training/test_resume.py",
    "test_model.py",
    "test_losses.py",
    "test_metrics.py",
    "test_schedules.py",
    "test_precision.py",
    "test_registration.py",
    "test_translator.py",
    "project/test_imports.py",
    "project/test_private_names.py",
)


def paths_of_tests() -> list[Path]:
    """The paths of `TESTS`; raises `FileNotFoundError` if one is missing."""
    paths = [ROOT / "tests" / name for name in TESTS]
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"there is no {path}: change TESTS")
    return paths


def check(side: str) -> int:
    """Runs the tests with one side of all ranges, "oldest" or "newest"; returns pytest's status."""
    index = ("oldest", "newest").index(side)
    folder = ROOT / "build" / "versions" / side
    pins = [f"{name}=={pair[index]}" for name, pair in (VERSIONS | INDIRECT).items()]
    try:
        venv.create(folder, clear=True, with_pip=True)
        python = folder / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "-q", *pins, *TOOLS], check=True)
        print(f"Tests with the {side} versions: {' '.join(pins)}", flush=True)
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [python, "-m", "pytest", "-q", *paths_of_tests()]
        return subprocess.run(command, cwd=ROOT, env=environment).returncode
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(max([check(side) for side in sys.argv[1:] or ("oldest", "newest")]))
