"""Training allocates the same blocks at each step: they stay in the process."""

import os
import sys

import pytest
from helpers import run_python

TRAIN_UNTIL_TENSORFLOW_IS_IMPORTED = """
import resource, sys, threading
from keras_transformer.cli import main, quiet

def allocate_in_threads():
    threads = [threading.Thread(target=bytearray, args=[100 * 2**20]) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

def count_page_faults():
    allocate_in_threads()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        allocate_in_threads()
    sys.exit(print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before))

quiet.import_tensorflow = count_page_faults
main.main(["train"])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="an option of glibc")
def test_blocks_that_threads_free_are_not_returned_to_the_system():
    pages_of_a_block = 100 * 2**20 // 4096
    assert int(run_python(TRAIN_UNTIL_TENSORFLOW_IS_IMPORTED)) < 2 * pages_of_a_block


ALLOCATE_512_MIB = """
from keras_transformer.machine import keep_freed_memory

keep_freed_memory()
import tensorflow as tf

try:
    tf.random.uniform((2**27,))
    print("allocated")
except tf.errors.ResourceExhaustedError:
    print("refused")
"""


@pytest.mark.slow  # TensorFlow waits ten seconds for memory before it refuses
@pytest.mark.parametrize(
    ("settings", "outcome"),
    [
        ({"TF_CPU_BFC_MEM_LIMIT_IN_MB": "256"}, "refused"),
        (
            {"TF_CPU_BFC_MEM_LIMIT_IN_MB": "256", "TF_CPU_ALLOCATOR_USE_BFC": "false"},
            "allocated",
        ),
    ],
)
def test_tensors_are_in_tensorflows_pool_which_the_user_may_set(settings, outcome):
    assert run_python(ALLOCATE_512_MIB, env={**os.environ, **settings}).strip() == outcome
