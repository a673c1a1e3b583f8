"""The processor of this machine, as Linux describes it."""

import functools
import platform
import re
from pathlib import Path

_DESCRIPTION = Path("/proc/cpuinfo")
# On a virtual machine, the model name may be that of several generations of processors.
_IDENTITY = (
    "model name",
    "cpu family",
    "model",
    "stepping",
    "flags",
    # Of ARM:
    "CPU implementer",
    "CPU part",
    "Features",
)


def model_name() -> str:
    """The name of the processor's model, or its architecture where the system does not tell."""
    return _field("model name") or platform.machine()


def identity() -> dict[str, str]:
    """The fields that tell this processor from others, as far as the system has them."""
    return {name: value for name in _IDENTITY if (value := _field(name))}


def flags() -> frozenset[str]:
    """Instruction sets of the processor, such as "avx512f"; none if the system does not tell."""
    return frozenset(_field("flags").split())


@functools.cache
def has_matrix_unit() -> bool:
    """Whether the processor multiplies matrices of 8-bit integers in a unit of its own (AMX)."""
    return "amx_int8" in flags()


def _field(name):
    text = _DESCRIPTION.read_text() if _DESCRIPTION.exists() else ""
    found = re.search(rf"^{name}\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else ""
