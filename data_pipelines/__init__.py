"""From raw photos and captions to TFRecords, and from TFRecords to batches.

This package knows nothing of models. `sources` reads what users have, `prepare` writes it
once as sharded TFRecords, `records` is the only place that names their features, and
`batches` turns them into what a model eats.
"""
