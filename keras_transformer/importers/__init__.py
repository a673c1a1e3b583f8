"""Imports published models of other toolkits."""

COMMANDS = {"marian": "import-marian", "m2m_100": "import-m2m100"}
"""The commands that import models of Transformers, by `model_type` of their `config.json`."""
