"""Tests, in the folders of the package; `support/` has what they share."""
