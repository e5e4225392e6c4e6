"""Models of requests, which validate every field."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from data_pipelines.errors import UserError
from keras_xmr.index import MAX_COUNT, MAX_PARTS, MAX_TEXT, Filters, Query
from keras_xmr.server.errors import validation_sentence

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_TEXT)]
Label = Annotated[str, StringConstraints(max_length=1000)]
Texts = Annotated[tuple[Text, ...], Field(max_length=MAX_PARTS)]
PhotoId = Annotated[int, Field(ge=0, lt=2**63)]
Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]


class FilterRequest(BaseModel):
    """Filters of the photos.

    Attributes:
        folder: Folder with its subfolders; empty for all.
        since: First day of the shot.
        until: Last day of the shot.
        tags: Required tags.
    """

    model_config = ConfigDict(extra="forbid")

    folder: Label = ""
    since: date | None = None
    until: date | None = None
    tags: Annotated[tuple[Label, ...], Field(max_length=MAX_PARTS)] = ()

    def filters(self) -> Filters:
        """Converts it to filters of the index."""
        return Filters(self.folder or None, self.since, self.until, self.tags)


class SampleRequest(FilterRequest):
    """Number and filters of the results.

    Attributes:
        count: Number of results.
    """

    count: Count = 20


class PhotosRequest(SampleRequest):
    """A page of photos, the newest first.

    Attributes:
        after: The field `next` of the previous page.
    """

    after: Annotated[str, StringConstraints(pattern=r"^([^ ]{0,40} \d{1,18})?$")] = ""


class SearchRequest(SampleRequest):
    """A search.

    Attributes:
        texts: Texts to match.
        ids: Ids of photos of the index to match.
        unlike: Texts that results should not match.
        matcher: The matcher; empty for that of the index.
        rerank: The re-ranker of the top photos of a text; empty for none.
    """

    texts: Texts = ()
    ids: Annotated[tuple[PhotoId, ...], Field(max_length=MAX_PARTS)] = ()
    unlike: Texts = ()
    matcher: Annotated[str, StringConstraints(max_length=100)] = ""
    rerank: Annotated[str, StringConstraints(max_length=100)] = ""

    def query(self, images: Sequence[bytes] = ()) -> Query:
        """Converts it to a query of the index, with image files to match."""
        return Query(texts=self.texts, images=tuple(images), ids=self.ids, unlike=self.unlike)


class WordsRequest(FilterRequest):
    """A text whose words are to be dropped one by one.

    Attributes:
        text: The text.
        count: Number of compared hits.
    """

    text: Text
    count: Annotated[int, Field(ge=1, le=100)] = 20


class MarkRequest(BaseModel):
    """Relevance feedback on a hit.

    Attributes:
        id: The photo.
        caption: The text of the query.
        grade: 1 for right, 0 for wrong, None to remove the mark.
    """

    model_config = ConfigDict(extra="forbid")

    id: PhotoId
    caption: Text
    grade: Literal[0, 1] | None


def parse_search(text: str) -> SearchRequest:
    """Parses a search in a field of a form, as JSON.

    Raises:
        UserError: If it is not valid.
    """
    try:
        return SearchRequest.model_validate_json(text or "{}")
    except ValidationError as error:
        details: list[Any] = error.errors(include_url=False, include_context=False)
        raise UserError(validation_sentence(details)) from None
