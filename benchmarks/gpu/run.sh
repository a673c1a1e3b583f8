#!/usr/bin/env bash
# Tries the package on a GPU: each step writes OUT/STEP.txt, and a step that fails stops no other.
#
#   OUT=gpu-results benchmarks/gpu/run.sh                # all steps, in order of their value
#   OUT=gpu-results benchmarks/gpu/run.sh light right    # these steps
#
# SMALL=1 takes small models and batches, to try the steps themselves on a CPU. MULTI30K names the
# folder of Multi30k, for the step `result`. PYTHON names the interpreter. `training` also
# times JAX and PyTorch, where they are installed; `decoding` needs PyTorch and Transformers.
set -uo pipefail
cd "$(dirname "$0")/../.."
OUT=$(realpath -m "${OUT:-gpu-results}")
PYTHON=${PYTHON:-python3}
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" TF_CPP_MIN_LOG_LEVEL=${TF_CPP_MIN_LOG_LEVEL:-1}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$OUT"
if [ "${SMALL:-}" ]; then
  steps=20 sizes=tiny batches=8x16 seconds=1 sentences=8 result_steps=20
else
  steps=200 sizes="base big" batches="390x64 1600x64" seconds=4 sentences=256 result_steps=8800
fi

light() { # the devices, a product, the first steps of `make demo`, and a translation
  nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader
  "$PYTHON" - <<'PY'
import time
import keras, tensorflow as tf
print("TensorFlow", tf.__version__, "Keras", keras.__version__)
print(tf.config.list_physical_devices("GPU"), tf.sysconfig.get_build_info().get("cuda_version"))
a = tf.random.normal((4096, 4096))
for _ in range(2):
    start = time.perf_counter()
    total = float(tf.reduce_sum(a @ a))
    print(f"product on {a.device}: sum {total:.0f}, {time.perf_counter() - start:.3f} s")
PY
  "$PYTHON" train.py --model_dir="$work/demo" --steps="$steps" &&
    echo 'The old man sees two birds.' |
    "$PYTHON" -m keras_transformer translate --model_dir="$work/demo"
}

right() { # values, searches, servers, resumed runs and MirroredStrategy beside the CPU
  "$PYTHON" -m pytest -q -rA -m gpu tests/gpu
}

formulas() { # what is compiled as a whole beside the plain formulas, without TF32's rounding
  NVIDIA_TF32_OVERRIDE=0 "$PYTHON" -m pytest -q -m 'slow or not slow' tests/fast
}

training() { # target tokens/s of a step: TensorFlow with and without XLA, JAX, PyTorch
  for size in $sizes; do
    for batch in $batches; do
      for jit in true false; do
        echo "TensorFlow $size $batch jit_compile=$jit"
        ours tensorflow "$size" "$batch" $jit
      done
      if has jax; then
        echo "JAX $size $batch"
        ours jax "$size" "$batch" true
      fi
      if has torch; then
        echo "PyTorch $size $batch"
        "$PYTHON" benchmarks/gpu/pytorch_training.py --size="$size" --batch="$batch" \
          --seconds=$seconds
      fi
    done
  done
}

has() { # MODULE
  "$PYTHON" -c "import importlib.util, sys; sys.exit(not importlib.util.find_spec('$1'))" ||
    { echo "$1 is not installed"; false; }
}

ours() { # BACKEND SIZE BATCH JIT_COMPILE: a contestant of benchmarks/train.py, as JSON
  KERAS_BACKEND=$1 "$PYTHON" benchmarks/train.py --batch="$3" --seconds=$seconds --noparts \
    --contestant="{\"size\": \"$2\", \"precision\": \"mixed_bfloat16\", \"jit_compile\": $4}"
}

profile() { # the operations that take the time of a step
  for jit in true false; do
    "$PYTHON" benchmarks/gpu/profile_step.py --size="${sizes%% *}" --batch="${batches%% *}" \
      --compiled=$jit
  done
}

decoding() { # target tokens/s of beam search beside Transformers' `generate`, with equal weights
  has torch && has transformers || return 1
  "$PYTHON" benchmarks/gpu/decoding.py --size="${sizes%% *}" --sentences=$sentences \
    --seconds=$seconds
}

result() { # Multi30k by the one command, and its BLEU
  "$PYTHON" train.py --train_source="$MULTI30K/train.en" --train_target="$MULTI30K/train.de" \
    --valid_source="$MULTI30K/val.en" --valid_target="$MULTI30K/val.de" --source_lang=en \
    --target_lang=de --lowercase --model_dir="$work/multi30k" --steps=$result_steps &&
    "$PYTHON" evaluate.py --model_dir="$work/multi30k" \
      --source="$MULTI30K/test_2016_flickr.en" --reference="$MULTI30K/test_2016_flickr.de"
}

for step in ${@:-light right formulas training profile decoding result}; do
  start=$SECONDS
  "$step" >"$OUT/$step.txt" 2>&1
  echo "$step: exit status $?, $((SECONDS - start)) s" >>"$OUT/$step.txt"
  tail -n 12 "$OUT/$step.txt"
done
