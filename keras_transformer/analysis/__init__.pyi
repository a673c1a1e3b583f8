from .attention import AttentionMaps, attention_maps
from .attention_figures import grid_figure, heat_figure, line_figure
from .paper_figures import positions_figure, schedule_figure
from .word_attention import WordAttention, pair_attention

__all__ = [
    "AttentionMaps",
    "WordAttention",
    "attention_maps",
    "grid_figure",
    "heat_figure",
    "line_figure",
    "pair_attention",
    "positions_figure",
    "schedule_figure",
]
