"""Differences of a config from the config of a published row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from keras_xmr.config.loader import load_config, packaged_ablations, packaged_configs
from keras_xmr.config.schema import Config

_PARTS = ("encoder", "pooling", "head")
_NONE = "none"


def differences(published: str, other: str) -> list[str]:
    """Where another config departs from that of a published row.

    Data, parts of the model, losses with their options, batch size, optimizer, epochs and rate.
    For different parts only the names are listed, not the options.

    Args:
        published: The packaged config of the row.
        other: The other one.

    Returns:
        Texts such as "batch size 64 (published: 128)".
    """
    known = packaged_configs() | packaged_ablations()
    theirs, ours = (_described(load_config(known[name])) for name in (published, other))
    return [
        f"{name} {ours.get(name, _NONE)} (published: {theirs.get(name, _NONE)})"
        for name in dict.fromkeys([*theirs, *ours])
        if theirs.get(name, _NONE) != ours.get(name, _NONE) and not _is_option(name, theirs, ours)
    ]


def _is_option(name: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    """Whether it is an option of a part that is another, or is none, on the other side."""
    part, dot, _ = name.partition(".")
    return bool(dot) and theirs.get(part) != ours.get(part)


def _described(config: Config) -> dict[str, Any]:
    """The relevant keys of a config, by name; options of a part after a dot."""
    content = config.model_dump(mode="json")
    model, train = content["model"], content["train"]
    phases = train["phases"]
    keys = {"data": content["data"]["source"]["name"]}
    for side in ("image", "text"):
        for part in _PARTS:
            keys |= dict(_part(f"{side} {part}", model[side][part]))
    keys |= {"dimension": model["dimension"]} | dict(_part("matcher", model["matcher"]))
    for loss in content["objective"]:
        options = {key: value for key, value in loss.items() if key != "name"}
        keys |= {loss["name"]: "yes"} | {f"{loss['name']}.{k}": v for k, v in options.items()}
    return keys | {
        "sampler": train["sampler"],
        "batch size": train["batch_size"],
        "optimizer": train["optimizer"]["name"],
        "epochs": sum(phase["epochs"] for phase in phases),
        "learning rate": phases[-1]["learning_rate"],
    }


def _part(title: str, part: Mapping[str, Any] | None) -> Iterator[tuple[str, Any]]:
    if part is None:
        return
    yield title, part.get("architecture") or part["name"]
    for key, value in part.items():
        if key != "name":
            yield f"{title}.{key}", _NONE if value is None else value
