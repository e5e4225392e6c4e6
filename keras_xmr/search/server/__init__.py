"""A server for an index of photos: JSON, and a page that searches.

TensorFlow is imported with the model that embeds queries, not by this package.
"""
