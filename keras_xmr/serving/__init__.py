"""Exporting models for inference."""

from keras_xmr.serving.export import export_keras, export_saved_model
from keras_xmr.serving.versions import next_version, remove_old_versions

__all__ = ["export_keras", "export_saved_model", "next_version", "remove_old_versions"]
