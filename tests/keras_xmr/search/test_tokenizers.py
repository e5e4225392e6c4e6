"""Tokenizers of searches give the ids of the tokenizers of training, for any text."""

from __future__ import annotations

import random
import unicodedata

import pytest
import tensorflow as tf

from data_pipelines.text import WordTokenizer, make_vocabulary, split_words
from keras_xmr.experiments.export.run_embedder import describe_tokenizer
from keras_xmr.search.embedder import text_tokenizer, tokenizers

SCRIPTS = (
    "abcxyz ÀÉßΣσςİıǅﬁ '’`´ʼ 0-9 १२६ ñçşığ 犬が走る ไทย עברית العربية हिन्दी 한국어 ελληνικά Привет "
    "🐶👨‍👩‍👧‍👦☃️ \u0301\u0308\u200d\u00a0\u2009\u202f\u3000\u00ad\t\n"
    '.,;:!?()[]{}<>|\\/_-—…«»$€#@&%*+=~^"'
)
WORDS = [
    "dogs",
    "it's",
    "Don't",
    "isn't",
    "'s",
    "12",
    "3.14",
    "   ",
    "İstanbul",
    "ΟΔΟΣ",
    "[CLS]",
    "##s",
]
SPECIAL = [
    "",
    " ",
    "'",
    "a" * 10_000,
    "dog " * 2_500,
    "a" * 100,
    "a" * 101,
    "é" * 50,
    "é" * 51,
    "\u0301",
]


def texts(count: int, more: tuple[str, ...] = ()) -> list[str]:
    """Texts of random characters of many scripts, and odd words."""
    rnd = random.Random(0)
    return [
        "".join(
            rnd.choice(SCRIPTS) if rnd.random() < 0.85 else rnd.choice([*WORDS, *more, " "])
            for _ in range(rnd.randint(0, 40))
        )
        for _ in range(count)
    ]


def characters(step: int) -> list[str]:
    """Texts with one character each, of all scripts."""
    known = (chr(c) for c in range(1, 0x110000, step) if unicodedata.category(chr(c))[0] != "C")
    return [f"a{c}b {c} {c}'s" for c in known]


def test_words_are_split_as_in_training():
    for given in (texts(3000), SPECIAL, characters(29)):
        expected = [[word.decode() for word in words] for words in split_words(given).to_list()]
        assert [text_tokenizer.split_words(text) for text in given] == expected


def light(tokenizer):
    """The tokenizer of searches that an embedder has for one of training."""
    described, files = describe_tokenizer(tokenizer)
    return tokenizers.make_tokenizer(described["kind"], files, described["options"])


def assert_equal(tokenizer, *lists):
    same = light(tokenizer)
    for given in lists:
        expected = tokenizer.pieces(tf.constant(given)).to_list()
        for text, ids in zip(given, expected, strict=True):
            assert same.pieces(text) == ids, ascii(text)[:200]
    ids, mask = same(["a dog", "", "one two three four"])
    padded = tokenizer(tf.constant(["a dog", "", "one two three four"])).numpy()
    assert ids[mask == 1].tolist() == padded[padded != tokenizer.pad].tolist()
    return same


def test_ids_of_words():
    counts = {word: 5 for text in texts(200) for word in text_tokenizer.split_words(text)}
    tokenizer = WordTokenizer(make_vocabulary(counts, 2), 64)
    same = assert_equal(tokenizer, texts(500), SPECIAL)
    assert same.unknown_words("dogs qqq flurb, qqq") == ("qqq", "flurb")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lowercase", "strip_accents"), [(True, True), (True, False), (False, True)]
)
def test_word_pieces(lowercase, strip_accents):
    import keras_hub

    from keras_xmr.encoders.pretrained.subwords import SubwordTokenizer

    letters = sorted({c for text in texts(400) for c in text.casefold() if not c.isspace()})
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{c}" for c in letters)]
    pieces += ["dog", "##s", "dogs", "run", "##ning", "don", "İ"]
    bert = keras_hub.tokenizers.BertTokenizer(
        list(dict.fromkeys(pieces)), lowercase=lowercase, strip_accents=strip_accents
    )
    assert_equal(SubwordTokenizer(bert, 64), texts(3000), SPECIAL, characters(29))


@pytest.mark.slow
def test_pairs_of_clip():
    import keras_hub

    from keras_xmr.encoders.pretrained.subwords import SubwordTokenizer

    letters = list(tokenizers._byte_letters())
    merges = ["d o", "do g</w>", "o g", "r u", "ru n", "run n", "n g</w>", "i ng</w>", "' s</w>"]
    vocabulary = [*letters, *(f"{c}</w>" for c in letters)]
    vocabulary += [merge.replace(" ", "") for merge in merges]
    vocabulary += ["<|startoftext|>", "<|endoftext|>"]
    ids = {piece: number for number, piece in enumerate(dict.fromkeys(vocabulary))}
    clip = keras_hub.tokenizers.CLIPTokenizer(ids, merges)
    long = ["dogrun" * 30, *(text for text in SPECIAL if len(text) < 2_000)]
    assert_equal(SubwordTokenizer(clip, 64), texts(1500), long, characters(211))


def test_text_of_ten_thousand_characters_is_merged_at_once():
    pairs = tokenizers.ClipPairs({"a": 0, "aa": 1, "a</w>": 2}, ["a a"], max_tokens=64)
    assert pairs.pieces("a" * 10_000) == [1] * 4_999 + [0, 2]


@pytest.mark.parametrize(
    ("kind", "files", "error"),
    [("spaces", {}, ValueError), ("words", {}, KeyError), ("clip", {"merges.txt": b""}, KeyError)],
)
def test_tokenizers_that_are_none_are_refused(kind, files, error):
    with pytest.raises(error):
        tokenizers.make_tokenizer(kind, files, {"max_tokens": 4})
