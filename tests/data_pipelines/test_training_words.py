"""Words of a query that no training caption has."""

from __future__ import annotations

import pytest
from small_index import StubEmbedder, write_photos

from data_pipelines.training_words import untrained_words
from keras_xmr.search import PhotoIndex, Query, Searcher
from keras_xmr.search.index_build import build_index
from keras_xmr.utils.errors import UserError

WORDS = "two dogs play in the snow a child 's red berry dishes n't beach surfing 狗 雪"
KNOWN = frozenset(WORDS.split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("two dogs in the snow", ()),
        ("A dog, a BERRY and berries; a dish!", ()),
        ("a photo of a giraffe", ("giraffe",)),
        ("Giraffe giraffe GIRAFFE zebra", ("Giraffe", "zebra")),
        ("zwei Hunde im Schnee", ("zwei", "Hunde", "im", "Schnee")),
        ("xqzw qqq", ("xqzw", "qqq")),
        ("the child\u2019s dog isn't here, don't", ()),
        ("2 dogs, 3rd beach", ("3rd",)),
        ("狗雪", ()),
        ("狗猫", ("狗猫",)),
        ("this is not it", ()),
        ("\N{DOG FACE} 12", ()),
        ("हिन्दी", ("हिन्दी",)),
    ],
)
def test_words_of_a_query(text, expected):
    assert untrained_words(text, KNOWN) == expected


class Trained(StubEmbedder):
    """A model that knows the words of its training captions."""

    def __init__(self) -> None:
        super().__init__()
        self.training_words = frozenset({"red", "photos"})


def test_an_index_knows_the_words_of_the_training(tmp_path):
    write_photos(tmp_path / "photos")
    root, path = tmp_path / "photos", tmp_path / "index"
    build_index(StubEmbedder(), root, path)
    index = PhotoIndex.open(path)
    assert index.training_words is None
    query = Query(texts=("red giraffe",), unlike=("zebra",))
    assert Searcher(index, embedder=StubEmbedder()).search(query).untrained_words == ()
    build_index(Trained(), root, path)
    index = PhotoIndex.open(path)
    assert index.training_words == {"red", "photos"}
    result = Searcher(index, embedder=StubEmbedder()).search(query)
    assert result.untrained_words == ("giraffe", "zebra")
    (name,) = index.content["words"]
    build_index(StubEmbedder(), root, path)
    assert set(PhotoIndex.open(path).content["words"]) == {name}, "they stay"
    (path / name).write_text("green\n")
    with pytest.raises(UserError, match=r"words.txt is damaged .* run `index` again"):
        PhotoIndex.open(path)
    report = build_index(Trained(), root, path)
    assert report.damaged == [path / name]
    assert PhotoIndex.open(path).training_words == {"red", "photos"}
