"""Judgements of public benchmarks, on small files of their layout."""

from __future__ import annotations

import json

import numpy as np
import pytest

from keras_xmr.judgements import JudgementsError, read_ground_truth, read_judgements

HIERARCAPS = """\
id,captions,image_url
0,"table => table with plates, and a man",http://images.cocodataset.org/val2014/COCO_val2014_000000301718.jpg
1,bird => blue bird => A blue bird on a branch,http://images.cocodataset.org/val2014/COCO_val2014_000000000489.jpg
2,bird => bird in a tree,http://images.cocodataset.org/val2014/COCO_val2014_000000337987.jpg
"""

INQUIRE = """\
,query_id,image_path
0,109,00012_Animalia/a.jpg
1,109,00012_Animalia/b.jpg
2,268,00099_Animalia/c.jpg
"""

MARQO = """\
query,product_id,position,title,pair_id,score_linear,query_id
red shoes,11,1,Shoe,p1,100,q1
red shoes,12,51,"Shoe, red",p2,50,q1
red shoes,12,90,"Shoe, red",p3,11,q1
blue hat,12,1,Shoe,p4,99,q2
"""

CIRCO = [
    {
        "reference_img_id": 85932,
        "target_img_id": 9761,
        "relative_caption": "is held by a little girl",
        "shared_concept": "a teddy bear",
        "gt_img_ids": [9761, 489535],
        "id": 0,
    },
    {"reference_img_id": 1, "target_img_id": 7, "gt_img_ids": [7], "id": 1},
]


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.write_text(text, "utf-8")
        return path

    return write


def grades(path, images, captions):
    return read_judgements(path, images, captions).grades.toarray().tolist()


def test_levels_of_hierarcaps_are_captions_of_coco_images(write):
    path = write("hierarcaps_test.csv", HIERARCAPS)
    truth = read_ground_truth(path)
    assert truth.image_ids == ["301718", "489", "337987"]
    assert truth.caption_ids[:3] == ["table", "table with plates, and a man", "bird"]
    assert truth.judgements.counts().tolist() == [2, 3, 2]
    images = ["337987", "139", "489"]
    assert grades(path, images, ["bird", "cat", "blue bird"]) == [[1, 0, 0], [0, 0, 0], [1, 0, 1]]


def test_inquire_names_queries_by_their_ids(write):
    path = write("inquire_annotations.csv", INQUIRE)
    images = ["00012_Animalia/b.jpg", "00012_Animalia/x.jpg", "00012_Animalia/a.jpg"]
    assert grades(path, images, ["139", "109"]) == [[0, 1], [0, 0], [0, 1]]


def test_marqo_gs_is_graded_and_the_highest_grade_of_a_pair_counts(write):
    path = write("query_0_product_id_0.csv", MARQO)
    assert grades(path, ["12", "11", "13"], ["red shoes", "blue hat"]) == [
        [50, 99],
        [100, 0],
        [0, 0],
    ]


def test_circo_has_several_right_images_a_query(write):
    path = write("val.json", json.dumps(CIRCO))
    found = read_judgements(path, ["489535", "7", "9761", "5"], ["1", "0"])
    np.testing.assert_array_equal(found.grades.toarray(), [[0, 1], [1, 0], [0, 1], [0, 0]])


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        (
            "test.json",
            json.dumps([{"id": 0}]),
            "no annotations of CIRCO's validation split: .*gt_img",
        ),
        ("val.json", "{", "cannot be read as JSON"),
        ("val.json", json.dumps({"images": []}), "no annotations of CIRCO"),
        ("val.json", "[]", "has none of the images and captions"),
        (
            "a.csv",
            INQUIRE,
            r"such as 'a' and 'b'; it has, for instance, '00099_Animalia/c.jpg' and '268'",
        ),
        ("m.csv", MARQO.replace("50", "half"), r"m.csv:3: the grade is 'half'"),
    ],
)
def test_other_files_are_refused(write, name, text, says):
    with pytest.raises(JudgementsError, match=says):
        read_judgements(write(name, text), ["a"], ["b"])


def test_a_file_of_our_own_is_as_strict_as_before(write):
    path = write("own.csv", "image,caption,query,product_id\na,b,c,d\n")
    with pytest.raises(JudgementsError, match="unknown caption 'b'"):
        read_judgements(path, ["a"], ["x"])
