"""Runs docs/tutorial.py as a notebook, and writes it with its outputs to docs/tutorial.ipynb."""

from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat.v4 import new_output

FOLDER = Path(__file__).resolve().parent

notebook = jupytext.read(FOLDER / "tutorial.py")
NotebookClient(
    notebook,
    timeout=1200,
    resources={"metadata": {"path": str(FOLDER.parent)}},  # where the package is
    extra_arguments=["--IPKernelApp.capture_fd_output=False"],  # nor what TensorFlow logs
).execute()
for number, cell in enumerate(notebook.cells):
    # Random names and times would differ at each run.
    cell.id, cell.metadata = f"cell-{number}", {}
    if cell.cell_type == "code":
        texts = [output.text for output in cell.outputs if output.get("name") == "stdout"]
        shown = [output for output in cell.outputs if output.output_type != "stream"]
        printed = [new_output("stream", text="".join(texts))] if texts else []
        cell.outputs = printed + shown
nbformat.write(notebook, FOLDER / "tutorial.ipynb")
