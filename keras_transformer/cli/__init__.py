"""The command `keras-transformer`: one module a subcommand.

Nothing at the top of these modules imports TensorFlow, so that `--help` answers at once: what needs
it is reached through the package's lazy names, or imported where it is used.
"""
