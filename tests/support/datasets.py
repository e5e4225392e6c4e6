"""Small data sets of our own, in the files that users have."""

from __future__ import annotations

import base64
import csv
import io
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

WORDS = "a red green blue round square little dog cat house tree on near the grass water"


def picture(seed: int, size: tuple[int, int] = (60, 44)) -> Image.Image:
    """A picture of coloured rectangles."""
    random = np.random.default_rng(seed)
    pixels = np.full((size[1], size[0], 3), random.integers(0, 256, 3), np.uint8)
    for _ in range(3):
        top, left = random.integers(0, size[1] - 8), random.integers(0, size[0] - 8)
        pixels[top : top + 8, left : left + 8] = random.integers(0, 256, 3)
    return Image.fromarray(pixels)


def encoded(image: Image.Image, kind: str = "JPEG", **options: Any) -> bytes:
    """The bytes of an image file."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def sentence(seed: int) -> str:
    random = np.random.default_rng(seed)
    return " ".join(random.choice(WORDS.split(), random.integers(3, 9))) + " ."


def write_csv(path: Path, header: list[str], rows: list[list[str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])


def csv_photos(root: Path, images: int = 24, captions: int = 2) -> dict[str, Any]:
    """Photos with a captions file and a split file; returns the source section."""
    (root / "images").mkdir(parents=True)
    names = [f"photo_{i:03d}.jpg" for i in range(images)]
    for i, name in enumerate(names):
        (root / "images" / name).write_bytes(encoded(picture(i)))
    rows = [[n, sentence(100 * i + c)] for i, n in enumerate(names) for c in range(captions)]
    write_csv(root / "captions.csv", ["image", "caption"], rows)
    splits = ["train"] * (images - 8) + ["val"] * 4 + ["test"] * 4
    rows = [[name, split] for name, split in zip(names, splits, strict=True)]
    write_csv(root / "splits.csv", ["image", "split"], rows)
    return {"name": "csv", "root": str(root), "splits": "splits.csv"}


def photo_folder(root: Path, images: int = 6) -> dict[str, Any]:
    """Photos with captions beside them: every second in JSON, some in a folder of the folder."""
    (root / "more").mkdir(parents=True)
    for i in range(images):
        photo = root / ("more" if i % 3 == 2 else "") / f"photo_{i}.jpg"
        photo.write_bytes(encoded(picture(i)))
        texts = [sentence(100 * i), sentence(100 * i + 1)]
        lines = "\n".join(texts) + "\n"
        told = json.dumps({"captions": texts})
        photo.with_suffix(".json" if i % 2 else ".txt").write_text(
            told if i % 2 else lines, "utf-8"
        )
    return {"name": "photo_folder", "root": str(root), "val_share": 0, "test_share": 0}


def karpathy(root: Path, images: list[dict[str, Any]]) -> Path:
    """A Karpathy split file."""
    path = root / "dataset.json"
    path.write_text(json.dumps({"images": images, "dataset": "made up"}), "utf-8")
    return path


def coco(root: Path) -> dict[str, Any]:
    """Six images in the COCO layout: four of the training file, two of the validation file."""
    ids = {"train": [9, 25, 32, 41], "val": [73, 80]}
    categories = [{"id": 5, "name": "dog"}, {"id": 2, "name": "cat"}, {"id": 90, "name": "tree"}]
    (root / "annotations").mkdir(parents=True)
    annotation = 1000
    for part, numbers in ids.items():
        (root / f"{part}2014").mkdir()
        images, captions, instances = [], [], []
        for number in numbers:
            name = f"COCO_{part}2014_{number:012d}.jpg"
            (root / f"{part}2014" / name).write_bytes(encoded(picture(number)))
            images.append({"id": number, "file_name": name, "width": 60, "height": 44})
            for _ in range(5):
                annotation += 3
                captions.append(
                    {"id": annotation, "image_id": number, "caption": sentence(annotation)}
                )
            instances.append({"id": number, "image_id": number, "category_id": 5})
            instances.append({"id": number + 1, "image_id": number, "category_id": 90})
        captions.reverse()
        for kind, found in (("captions", captions), ("instances", instances)):
            content = {"images": images, "annotations": found}
            if kind == "instances":
                content["categories"] = categories
            path = root / "annotations" / f"{kind}_{part}2014.json"
            path.write_text(json.dumps(content), "utf-8")
    splits = {25: "train", 9: "test", 73: "restval", 80: "val", 32: "test", 41: "train"}
    karpathy(
        root,
        [
            {
                "filename": f"COCO_{number}.jpg",
                "filepath": "val2014",
                "cocoid": number,
                "split": split,
                "sentences": [],
            }
            for number, split in splits.items()
        ],
    )
    return {"name": "coco", "root": str(root), "split_file": "dataset.json"}


def flickr30k(root: Path) -> dict[str, Any]:
    """Five images in the Flickr30K layout."""
    (root / "flickr30k-images").mkdir(parents=True)
    images = []
    for number, split in enumerate(["train", "test", "train", "val", "train"]):
        name = f"{number}.jpg"
        (root / "flickr30k-images" / name).write_bytes(encoded(picture(number)))
        sentences = [{"raw": sentence(number * 5 + k), "sentid": number * 5 + k} for k in range(5)]
        images.append({"filename": name, "split": split, "sentences": sentences, "imgid": number})
    karpathy(root, images)
    return {"name": "flickr30k", "root": str(root), "split_file": "dataset.json"}


def flickr8k(root: Path, test: int = 2) -> dict[str, Any]:
    """Photos in the layout in which Flickr8K was released, with judgements of the test photos.

    As there, two photos of the captions are in no split, and one of them goes by a name of which
    there is no file.
    """
    (root / "Flicker8k_Dataset").mkdir(parents=True)
    splits = {"train": 3, "dev": 1, "test": test}
    names = {split: [f"{split}_{n}.jpg" for n in range(count)] for split, count in splits.items()}
    photos = sorted([*itertools.chain(*names.values()), "nowhere_0.jpg"])
    lines = []
    for number, name in enumerate([*photos, "nowhere_1.jpg.1"]):
        if name in photos:
            (root / "Flicker8k_Dataset" / name).write_bytes(encoded(picture(number)))
        lines += [f"{name}#{k}\t{sentence(number * 5 + k)}" for k in range(5)]
    (root / "Flickr8k.token.txt").write_text("\n".join(lines) + "\n", "utf-8")
    for split, own in names.items():
        (root / f"Flickr_8k.{split}Images.txt").write_text("\n".join(own) + "\n", "utf-8")
    experts, crowd = [], []
    for photo, caption in itertools.product(range(test), repeat=2):
        pair = f"test_{photo}.jpg\ttest_{caption}.jpg#2"
        yes = 3 if photo == caption else (photo + caption) % 4  # of 3 votes
        experts.append(f"{pair}\t{1 + yes}\t{1 + yes}\t{1 + (yes + photo) % 4}")
        crowd.append(f"{pair}\t{yes / 3:.9g}\t{yes}\t{3 - yes}")
    (root / "ExpertAnnotations.txt").write_text("\n".join(experts[1:]) + "\n", "utf-8")
    (root / "CrowdFlowerAnnotations.txt").write_text("\n".join(crowd) + "\n", "utf-8")
    return {"name": "flickr8k", "root": str(root)}


def cub(root: Path, classes: int = 4, images: int = 6) -> dict[str, Any]:
    """Birds in the layout of CUB-200-2011 with the captions of Reed et al."""
    lines: dict[str, list[str]] = {"images.txt": [], "image_class_labels.txt": []}
    names = [f"{c + 1:03d}.Bird_{c}" for c in range(classes)]
    number = 0
    for c, bird in enumerate(names):
        (root / "images" / bird).mkdir(parents=True)
        (root / "text_c10" / bird).mkdir(parents=True)
        for i in range(images):
            number += 1
            name = f"{bird}/Bird_{c}_{i}.jpg"
            (root / "images" / name).write_bytes(encoded(picture(number)))
            texts = "\n".join(sentence(number * 10 + k) for k in range(10)) + "\n"
            (root / "text_c10" / name).with_suffix(".txt").write_text(texts, "utf-8")
            lines["images.txt"].append(f"{number} {name}")
            lines["image_class_labels.txt"].append(f"{number} {c + 1}")
    lines["trainvalclasses.txt"] = names[:-1]
    lines["testclasses.txt"] = names[-1:]
    for name, content in lines.items():
        (root / name).write_text("\n".join(content) + "\n", "utf-8")
    return {"name": "cub", "root": str(root)}


def regions(root: Path, repeated: bool = False, width: int = 7) -> dict[str, Any]:
    """Region features in the layout of SCAN; `repeated` gives every image once a caption."""
    root.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    for name, images in (("train", 8), ("dev", 3), ("test", 3)):
        features = random.normal(size=(images, 4, width)).astype(np.float32)
        if repeated and name != "train":
            features = np.repeat(features, 5, axis=0)
        np.save(root / f"{name}_ims.npy", features)
        texts = [sentence(images * 100 + k) for k in range(5 * images)]
        (root / f"{name}_caps.txt").write_text("\n".join(texts) + "\n", "utf-8")
    return {"name": "regions", "root": str(root)}


def bottom_up(root: Path, counts: tuple[int, ...] = (4, 6, 5, 4, 7, 5), width: int = 7) -> dict:
    """Region features as bottom-up attention has them, in two TSV files, with a split file."""
    root.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    rows, images = [], []
    splits = ("train", "restval", "train", "val", "test", "train")
    for number, (count, split) in enumerate(zip(counts, splits, strict=True)):
        corners = np.sort(random.random((count, 2, 2)), axis=1)  # (left, top), (right, bottom)
        boxes = corners.reshape(count, 4) * [60, 44, 60, 44]
        features = np.maximum(random.normal(size=(count, width)), 0.01)
        rows.append(tsv_row(100 + number, (60, 44), boxes, features))
        sentences = [{"raw": sentence(number * 5 + k), "sentid": number * 5 + k} for k in range(5)]
        images.append({"filename": f"COCO_{number}.jpg", "split": split, "sentences": sentences})
        images[-1] |= {"filepath": "val2014", "cocoid": 100 + number}
    (root / "features.tsv.0").write_bytes(b"".join(rows[3:]))
    (root / "features.tsv.1").write_bytes(b"".join(rows[:3]))
    karpathy(root, images)
    files = ["features.tsv.0", "features.tsv.1"]
    return {"name": "bottom_up", "root": str(root), "features": files, "captions": ["dataset.json"]}


def tsv_row(key: object, size: tuple[int, int], boxes: np.ndarray, features: np.ndarray) -> bytes:
    """A row of a TSV file of bottom-up attention."""
    arrays = [base64.b64encode(np.asarray(a, "<f4").tobytes()).decode() for a in (boxes, features)]
    return "\t".join([str(key), *map(str, size), str(len(boxes)), *arrays]).encode() + b"\n"
