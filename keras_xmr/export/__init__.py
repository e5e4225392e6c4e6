"""Exporting models for inference."""

from keras_xmr.export.saved_model import (
    export_keras,
    export_saved_model,
    next_version,
    remove_old_versions,
)
