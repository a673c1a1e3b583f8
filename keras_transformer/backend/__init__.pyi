from .cores import number_of_cores, parts_for_cores, share_cores

__all__ = ["number_of_cores", "parts_for_cores", "share_cores"]
