"""Compares methods: trains what is missing, gathers figures, and tests their differences."""
