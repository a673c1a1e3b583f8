"""Imports published models of other toolkits."""
