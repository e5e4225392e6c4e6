"""From a model and the records of a split to metrics.

`core`, `results`, `files`, `score_files` and `external_scores` need no TensorFlow.
"""
