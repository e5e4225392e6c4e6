"""Exporting models for inference, and asking TF Serving."""
