from .attention import AttentionMaps, attention_maps
from .attention_figures import grid_figure, heat_figure, line_figure
from .paper_figures import positions_figure, schedule_figure

__all__ = [
    "AttentionMaps",
    "attention_maps",
    "grid_figure",
    "heat_figure",
    "line_figure",
    "positions_figure",
    "schedule_figure",
]
