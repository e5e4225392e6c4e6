"""Compares methods: trains what is missing, gathers figures, and tests their differences."""

from keras_xmr.comparison.compare import compare

__all__ = ["compare"]
