"""Words, vocabularies, dropping."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from data_pipelines.text import (
    SPECIAL,
    CaptionIds,
    WordTokenizer,
    count_words,
    drop_words,
    make_vocabulary,
    read_vocabulary,
    split_words,
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A dog, running .", "a dog running"),
        ("It isn't the dog's ball", "it is n't the dog 's ball"),
        ("they’re “two-toned”", "they 're two toned"),
        ("'quoted' rock 'n' roll", "quoted rock n roll"),
        ("ÉTÉ à l'Été", "été à l'été"),
        ("一只狗 in the snow ❄️🐕", "一 只 狗 in the snow"),
        ("ＡＢ e\u0301t 3.5m", "ａｂ e\u0301t 3 5m"),
        ("  \t\n ... !!!", ""),
        ("", ""),
    ],
)
def test_words(text, words):
    found = split_words([text])[0].numpy().tolist()
    assert [word.decode() for word in found] == words.split()


def test_vocabulary_is_ordered_and_cut():
    counts = count_words(["the dog the cat", "a dog", "the tree"])
    assert counts == Counter(the=3, dog=2, cat=1, a=1, tree=1)
    assert make_vocabulary(counts, 2) == [*SPECIAL, "the", "dog"]
    assert make_vocabulary(counts, 1)[-3:] == ["a", "cat", "tree"]


def test_tokenizer_encloses_pads_and_cuts():
    tokenizer = WordTokenizer([*SPECIAL, "dog", "a"], max_words=3)
    ids = tokenizer(["a dog", "a zebra sees a dog", "", "🐕"]).numpy()
    np.testing.assert_array_equal(
        ids, [[2, 5, 4, 3, 0], [2, 5, 1, 1, 3], [2, 3, 0, 0, 0], [2, 3, 0, 0, 0]]
    )
    assert tokenizer.text(ids[0]) == "<start> a dog <end>"


def test_vocabulary_files_are_checked(tmp_path):
    path = tmp_path / "vocabulary.txt"
    path.write_text("\n".join([*SPECIAL, "dog"]) + "\n", "utf-8")
    assert read_vocabulary(path) == [*SPECIAL, "dog"]
    path.write_text("dog\ncat\n", "utf-8")
    with pytest.raises(ValueError, match="not a vocabulary"):
        read_vocabulary(path)
    path.write_text("\n".join([*SPECIAL, "dog", "dog"]) + "\n", "utf-8")
    with pytest.raises(ValueError, match="repeats a word"):
        read_vocabulary(path)


def test_dropping_replaces_and_removes_in_order():
    ids, lengths = np.tile(np.arange(4, 44), (200, 1)), np.full(200, 40)
    draws = np.random.default_rng(3).random((200, 2, 40))
    kept, left = drop_words(ids, lengths, 0.25, draws, 1)
    kept = kept[:, :30]
    assert (left == 30).all()
    assert 0.22 < (kept == 1).mean() < 0.28
    for k in kept:
        assert (np.diff(k[k != 1]) > 0).all()
    removed = np.setdiff1d(np.arange(4, 44), drop_words(ids, lengths, 0.25, draws, None)[0][0, :30])
    np.testing.assert_array_equal(removed, 4 + np.sort(np.argsort(draws[0, 1])[:10]))
    _, left = drop_words(ids, np.arange(200) % 41, 0.1, draws, 1)
    np.testing.assert_array_equal(left, [n - n // 10 for n in np.arange(200) % 41])


def test_captions_are_tokenised_once_as_one_by_one():
    tokenizer = WordTokenizer([*SPECIAL, "dog", "a"], max_words=3)
    texts = ["a dog", "a zebra sees a dog", "", "a", "dog dog dog"]
    captions = CaptionIds.from_texts(texts, tokenizer)
    assert captions.longest == 3
    for numbers in ([0, 1, 2, 3, 4], [3, 0], [2], [4, 4]):
        expected = tokenizer([texts[number] for number in numbers])
        np.testing.assert_array_equal(captions.batch(np.array(numbers)), expected)
    padded = captions.batch(np.array([0, -1, 3]))
    np.testing.assert_array_equal(padded, [[2, 5, 4, 3], [0, 0, 0, 0], [2, 5, 3, 0]])
