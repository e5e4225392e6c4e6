"""Experiments: from a config to a trained model, its results and its report. Needs TensorFlow."""
