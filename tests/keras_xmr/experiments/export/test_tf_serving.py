"""The files of the docs for TF Serving fit together."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

FOLDER = Path(__file__).parents[4] / "docs" / "tf_serving"


def numbers(name: str, text: str) -> list[int]:
    """The numbers of a field, in the text format of protocol buffers."""
    return [int(found) for found in re.findall(rf"{name}\s*:?\s*\{{?\s*(?:value:\s*)?(\d+)", text)]


def test_batches_are_of_allowed_sizes():
    text = (FOLDER / "batching.config").read_text("utf-8")
    allowed = numbers("allowed_batch_sizes", text)
    assert allowed == sorted(set(allowed))
    assert allowed[-1:] == numbers("max_batch_size", text)
    assert numbers("num_batch_threads", text)[0] >= 1
    assert "pad_variable_length_inputs: true" in text


def test_the_server_and_prometheus_name_the_same_files_and_paths():
    compose = yaml.safe_load((FOLDER / "docker-compose.yaml").read_text("utf-8"))
    serving, prometheus = compose["services"]["serving"], compose["services"]["prometheus"]
    for argument in serving["command"]:
        if "_file=" in argument:
            assert (FOLDER / Path(argument.partition("=")[2]).name).is_file(), argument
    for service in (serving, prometheus):
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    (job,) = yaml.safe_load((FOLDER / "prometheus.yaml").read_text("utf-8"))["scrape_configs"]
    monitoring = (FOLDER / "monitoring.config").read_text("utf-8")
    assert "enable: true" in monitoring
    assert f'path: "{job["metrics_path"]}"' in monitoring
    assert job["static_configs"] == [{"targets": ["serving:8501"]}]
