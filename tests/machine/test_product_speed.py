"""The precision of `--dtype_policy=auto`: measured, and the measurement kept."""

import json
import os
import pathlib

import pytest
import tensorflow as tf
from helpers import run_python

from keras_transformer.machine import processor, product_speed
from keras_transformer.machine.product_speed import fastest_precision, slowdown

MEASURED = "keras_transformer.machine.product_speed.measured_slowdown"


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """Says what a measurement gives, in an empty cache; the list of the measurements."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
        monkeypatch.delenv(name, raising=False)
    measurements = []

    def give(ratio):
        def measure(*arguments):
            measurements.append(arguments)
            return ratio

        monkeypatch.setattr(MEASURED, measure)
        return measurements

    return give


@pytest.fixture
def without_gpu(monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])


@pytest.mark.parametrize(
    ("ratio", "policy", "reason"),
    [
        (0.5236, "mixed_bfloat16", "a product takes 0.52 times as long as in float32"),
        (0.89, "mixed_bfloat16", "a product takes 0.89 times as long as in float32"),
        (0.91, "float32", "a product takes 0.91 times as long in bfloat16"),
        (1.64, "float32", "a product takes 1.6 times as long in bfloat16"),
    ],
)
@pytest.mark.usefixtures("without_gpu")
def test_the_faster_precision_is_chosen_by_measurement(measured, ratio, policy, reason):
    measurements = measured(ratio)
    assert fastest_precision(width=128, units=256) == (policy, reason)
    assert measurements == [("bfloat16", 128, 256)]


@pytest.mark.parametrize("variable", ["ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"])
@pytest.mark.parametrize(
    ("value", "policy"),
    [("AVX2", "float32"), ("avx2_vnni", "float32"), ("AVX512_CORE_BF16", "mixed_bfloat16")],
)
@pytest.mark.usefixtures("without_gpu")
def test_nothing_is_measured_where_tensorflow_would_crash(
    measured, monkeypatch, variable, value, policy
):
    measurements = measured(0.5)
    monkeypatch.setenv(variable, value)
    precision = fastest_precision(128, 256)
    assert precision.policy == policy
    assert (precision.reason == f"{variable}={value} excludes bfloat16") == (not measurements)


@pytest.mark.parametrize(
    ("capability", "policy"), [((8, 0), "mixed_bfloat16"), ((7, 5), "float32")]
)
def test_on_a_gpu_its_capability_decides(measured, monkeypatch, capability, policy):
    measurements = measured(0.5)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["GPU:0"])
    details = {"compute_capability": capability}
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda gpu: details)
    assert fastest_precision(128, 256).policy == policy
    assert not measurements


def test_a_measurement_is_kept(measured):
    measurements = measured(0.5)
    assert slowdown("bfloat16", 128, 256) == slowdown("bfloat16", 128, 256) == 0.5
    assert len(measurements) == 1


@pytest.mark.parametrize("changed", ["environment", "processor", "tensorflow", "cores", "shape"])
def test_another_machine_or_shape_is_measured_anew(measured, monkeypatch, changed):
    measured(0.5)
    slowdown("bfloat16", 128, 256)
    if changed == "environment":
        monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    elif changed == "processor":
        other = {**processor.identity(), "model": "another"}
        monkeypatch.setattr(processor, "identity", lambda: other)
    elif changed == "tensorflow":
        monkeypatch.setattr(tf, "__version__", "2.99")
    elif changed == "cores":
        monkeypatch.setattr(product_speed, "number_of_cores", lambda: 999)
    measured(1.6)
    assert slowdown("bfloat16", 512 if changed == "shape" else 128, 256) == 1.6


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_text("{"),
        lambda path: path.write_bytes(b"\xff"),
        lambda path: path.write_text("[]"),
        lambda path: path.write_text(path.read_text().replace("0.5", "-0.5")),
        lambda path: path.write_text(path.read_text().replace("0.5", "NaN")),
        lambda path: path.write_text(path.read_text().replace("bfloat16", "float16")),
        lambda path: (path.unlink(), os.mkfifo(path)),
    ],
)
def test_a_damaged_file_is_measured_again_and_replaced(measured, tmp_path, damage):
    measured(0.5)
    slowdown("bfloat16", 128, 256)
    [path] = tmp_path.glob("cache/keras_transformer/*")
    damage(path)
    measured(0.6)
    assert slowdown("bfloat16", 128, 256) == 0.6
    assert json.loads(path.read_text())["slowdown"] == 0.6


@pytest.mark.parametrize("kind", ["cache", "cache/keras_transformer"])
def test_training_needs_no_cache(measured, tmp_path, kind):
    path = tmp_path / kind
    path.parent.mkdir(exist_ok=True)
    path.write_text("a file where a folder should be")
    measurements = measured(0.5)
    assert slowdown("bfloat16", 128, 256) == slowdown("bfloat16", 128, 256) == 0.5
    assert len(measurements) == 2
    assert path.read_text() == "a file where a folder should be"


def test_a_processor_is_more_than_its_model_name(monkeypatch, tmp_path):
    """Virtual machines name several generations alike."""

    def identity_with(flags):
        description = tmp_path / "cpuinfo"
        description.write_text(f"model name\t: AMD EPYC\nmodel\t\t: 17\nflags\t\t: {flags}\n")
        monkeypatch.setattr(processor, "_DESCRIPTION", pathlib.Path(description))
        return processor.identity()

    assert identity_with("fpu avx2") == {
        "model name": "AMD EPYC",
        "model": "17",
        "flags": "fpu avx2",
    }
    assert identity_with("fpu avx2") != identity_with("fpu avx2 avx512_bf16")


@pytest.mark.slow  # in processes of their own, since oneDNN reads the variable once
@pytest.mark.parametrize("instructions", ["AVX512_CORE", "AVX2"])
def test_a_processor_that_must_emulate_bfloat16_trains_in_float32(tmp_path, instructions):
    script = """
from keras_transformer.machine.product_speed import fastest_precision
print(fastest_precision(128, 256).policy)
"""
    environment = {"ONEDNN_MAX_CPU_ISA": instructions, "XDG_CACHE_HOME": str(tmp_path)}
    assert run_python(script, env={**os.environ, **environment}) == "float32\n"
