"""A server for an index of photos: JSON, and a page that searches.

Nothing here imports TensorFlow; it comes with the model that embeds queries.
"""
