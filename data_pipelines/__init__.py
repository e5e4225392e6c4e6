"""From raw photos and captions to TFRecords, and from TFRecords to batches.

This package does not depend on models. `sources` reads data sets, `prepare` writes them once as
sharded TFRecords, `records` is the only module that names their features, and `batches` builds the
`tf.data` pipelines.
"""
