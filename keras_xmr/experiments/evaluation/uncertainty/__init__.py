"""Uncertainty of embeddings: sigma, calibration, selective answers, and occlusion."""
