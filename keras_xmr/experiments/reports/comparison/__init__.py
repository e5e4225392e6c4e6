"""Compares methods: trains missing runs, gathers figures, and tests their differences."""
