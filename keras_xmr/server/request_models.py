"""What clients may ask for, checked field by field."""

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
    """Which photos are searched at all.

    Attributes:
        folder: Those in a folder, and in the folders within; all if it is empty.
        since: Those taken on this day or later.
        until: Those taken on this day or before.
        tags: Those that have all of these tags.
    """

    model_config = ConfigDict(extra="forbid")

    folder: Label = ""
    since: date | None = None
    until: date | None = None
    tags: Annotated[tuple[Label, ...], Field(max_length=MAX_PARTS)] = ()

    def filters(self) -> Filters:
        """The same for the index."""
        return Filters(self.folder or None, self.since, self.until, self.tags)


class SampleRequest(FilterRequest):
    """How many photos are wanted, and which.

    Attributes:
        count: How many.
    """

    count: Count = 20


class PhotosRequest(SampleRequest):
    """Which photos are looked through, the newest first.

    Attributes:
        after: What an earlier answer has called `next`: they begin after its photos.
    """

    after: Annotated[str, StringConstraints(pattern=r"^([^ ]{0,40} \d{1,18})?$")] = ""


class SearchRequest(SampleRequest):
    """What a photo should be like.

    Attributes:
        texts: Texts that it should fit.
        ids: Photos of the index that it should be like.
        unlike: Texts that it should not fit.
        matcher: What ranks the photos; empty for the matcher of the index.
        rerank: What orders the first photos of a text anew; empty for nothing.
    """

    texts: Texts = ()
    ids: Annotated[tuple[PhotoId, ...], Field(max_length=MAX_PARTS)] = ()
    unlike: Texts = ()
    matcher: Annotated[str, StringConstraints(max_length=100)] = ""
    rerank: Annotated[str, StringConstraints(max_length=100)] = ""

    def query(self, images: Sequence[bytes] = ()) -> Query:
        """The same for the index, with image files that the photo should be like."""
        return Query(texts=self.texts, images=tuple(images), ids=self.ids, unlike=self.unlike)


class WordsRequest(FilterRequest):
    """A text whose words are to be dropped one by one.

    Attributes:
        text: The text.
        count: How many hits are compared.
    """

    text: Text
    count: Annotated[int, Field(ge=1, le=100)] = 20


class MarkRequest(BaseModel):
    """What somebody says of a hit.

    Attributes:
        id: The photo.
        caption: The text that found it.
        grade: 1 if it is right, 0 if it is wrong, None to take back what was said.
    """

    model_config = ConfigDict(extra="forbid")

    id: PhotoId
    caption: Text
    grade: Literal[0, 1] | None


def parse_search(text: str) -> SearchRequest:
    """A search in a field of a form, as JSON.

    Raises:
        UserError: If it is none.
    """
    try:
        return SearchRequest.model_validate_json(text or "{}")
    except ValidationError as error:
        details: list[Any] = error.errors(include_url=False, include_context=False)
        raise UserError(validation_sentence(details)) from None
