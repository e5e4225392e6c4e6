"""Configs: their schema, how they are read, what fits together, and what there is to choose.

Needs no TensorFlow.
"""
