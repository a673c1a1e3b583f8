from .attention_figures import grid_figure, heat_figure, line_figure
from .history import RunHistory, read_history
from .paper_figures import positions_figure, schedule_figure
from .run_page import write_report
from .word_attention import WordAttention, pair_attention

__all__ = [
    "RunHistory",
    "WordAttention",
    "grid_figure",
    "heat_figure",
    "line_figure",
    "pair_attention",
    "positions_figure",
    "read_history",
    "schedule_figure",
    "write_report",
]
