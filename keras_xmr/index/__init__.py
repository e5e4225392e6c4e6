"""Search of a folder of photos by a finished run."""
