"""Configs: schema, loading, checks of compatibility, and the registry of components.

Needs no TensorFlow.
"""
