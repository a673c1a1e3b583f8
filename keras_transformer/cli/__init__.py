"""The command `keras-transformer`: one module for each subcommand.

No module imports TensorFlow at its top, so that `--help` answers at once. Code that needs it uses
the package's lazy names, or imports it inside a function.
"""
