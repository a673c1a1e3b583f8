from .arithmetic_speed import product_flops
from .cores import number_of_cores, parts_for_cores, share_cores
from .memory import keep_freed_memory

__all__ = [
    "keep_freed_memory",
    "number_of_cores",
    "parts_for_cores",
    "product_flops",
    "share_cores",
]
