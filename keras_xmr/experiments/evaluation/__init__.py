"""From a model and the records of a split to metrics.

`results`, `files`, `score_files` and `external_scores` need no TensorFlow.
"""
