from .saved_model import export_saved_model

__all__ = ["export_saved_model"]
