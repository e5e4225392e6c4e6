"""Words, vocabularies, dropping."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from data_pipelines.text import (
    SPECIAL,
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
    with pytest.raises(ValueError, match="twice"):
        read_vocabulary(path)


def test_dropping_replaces_and_removes_in_order():
    ids = tf.range(4, 44)
    kept = [drop_words(ids, 0.25, tf.constant([3, seed])).numpy() for seed in range(200)]
    assert {len(k) for k in kept} == {30}
    replaced = np.mean([(k == 1).mean() for k in kept])
    assert 0.22 < replaced < 0.28
    for k in kept:
        assert (np.diff(k[k != 1]) > 0).all()
    np.testing.assert_array_equal(drop_words(ids, 0.25, tf.constant([3, 5])), kept[5])
    assert drop_words(tf.constant([4, 5, 6]), 0.1, tf.constant([0, 0])).shape == (3,)
