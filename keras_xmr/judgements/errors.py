"""The error of judgements that cannot be read."""

from data_pipelines.errors import UserError


class JudgementsError(UserError):
    """Judgements cannot be read; the message names the file, the line and the way out."""
