"""A small world of drawn shapes whose captions have a computable meaning.

`world` says what a scene is and samples scenes, `render` draws them, `language` defines what
captions mean, and `captions` chooses what to say about a scene. Since the text of a caption and
its truth come from the same object, the images that a caption is true of are computed rather
than annotated, and no right answer is missing.
"""
