"""A small world of drawn shapes with captions of computable meaning.

`world` defines, samples and draws scenes, `language` defines the meaning of captions, and
`captions` chooses statements about a scene. Since the text of a caption and its truth come from
the same object, the relevant images of a caption are computed rather than annotated, and are
complete.
"""
