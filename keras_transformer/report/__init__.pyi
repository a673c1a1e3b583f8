from .history import RunHistory, read_history
from .page import write_report

__all__ = ["RunHistory", "read_history", "write_report"]
