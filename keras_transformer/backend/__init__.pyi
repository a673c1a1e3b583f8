from .cores import parts_for_cores, share_cores

__all__ = ["parts_for_cores", "share_cores"]
