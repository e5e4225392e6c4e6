"""Splitting captions into the words that CIDEr counts."""

from __future__ import annotations

import importlib.util
import json
import shutil

import pytest

from keras_xmr.relevance import java_tokenize, ptb_tokenize
from keras_xmr.utils.errors import UserError

# What the Java program makes of them.
CAPTIONS = {
    "A brown dog plays in the snow .": "a brown dog plays in the snow",
    "The man's dog isn't here, and can't run.": "the man 's dog is n't here and ca n't run",
    "I'm sure they cannot see: you're gone": "i 'm sure they can not see you 're gone",
    "Two men gonna ride; they've helmets!": "two men gon na ride they 've helmets",
    "A \"stop\" sign and 'toys' -- wow...": "a stop sign and toys wow",
    "the dogs' bowls , children's toys": "the dogs bowls children 's toys",
    "A grey-haired man in a t-shirt - smiling": "a grey-haired man in a t-shirt smiling",
    "a black and/or b/w photo": "a black and/or b/w photo",
    "Mr. Smith of the U.S. at 10 a.m.": "mr. smith of the u.s. at 10 a.m.",
    "5,000 people, 3.50 each, at 10:15 with 50%": "5,000 people 3.50 each at 10:15 with 50 %",
    "a (red) [big] car": "a -lrb- red -rrb- -lsb- big -rsb- car",
    "rock 'n' roll at o'clock in the '90s, 1990's": (
        "rock 'n' roll at o'clock in the '90s 1990 's"
    ),
    "a man ,woman and child.They walk": "a man woman and child.they walk",
    "AT&T and cats & dogs #1 @ home $5": "at&t and cats & dogs # 1 @ home $ 5",
    "hey!!! what?! it's 5'10\" tall": "hey !!! what ?! it 's 5 10 tall",
    "Café – “quoted” ‘single’ don’t … ½ cup": "café quoted single do n't 1/2 cup",
    "'tis a 3-year-old, y'all": "'t is a 3-year-old y' all",
    "": "",
    " . ": "",
    "dog": "dog",
}


@pytest.mark.parametrize("caption", CAPTIONS)
def test_usual_captions(caption):
    assert ptb_tokenize([caption]) == [CAPTIONS[caption].split()]


def test_captions_match_golden(golden):
    folder = golden("cider").folder
    texts = json.loads((folder / "cider_captions.json").read_text("utf-8"))
    for raw, expected in zip(texts["captions_raw"], texts["captions_tokenised"], strict=True):
        assert ptb_tokenize(raw) == [text.split() for text in expected]


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("pycocoevalcap") is None or shutil.which("java") is None,
    reason="needs pycocoevalcap and Java",
)
def test_java_agrees():
    assert java_tokenize(CAPTIONS) == [text.split() for text in CAPTIONS.values()]
    assert java_tokenize(["a\nb", "", "c\u2028d"]) == [["a", "b"], [], ["c", "d"]]
    assert java_tokenize([]) == []


def test_what_the_java_tokenizer_needs_is_told(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(UserError, match="pip install"):
            java_tokenize(["a dog"])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UserError, match="Java runtime"):
        java_tokenize(["a dog"])
