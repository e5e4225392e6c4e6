"""Exporting models for inference."""
