"""Exporting models for inference."""

from keras_xmr.serving.export import export_keras, export_saved_model

__all__ = ["export_keras", "export_saved_model"]
