"""Lets the tests import the demo's modules: pytest puts this folder on the path."""
