"""What is written for TF Serving, held against its own messages."""

from __future__ import annotations

from pathlib import Path

import yaml
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

FOLDER = Path(__file__).parents[3] / "docs" / "tf_serving"

# Messages that the package tensorflow-serving-api leaves out, as the sources of TF Serving have
# them: fields by number, with their types.
WRAPPERS = {"Int64Value": {"value": (1, "INT64")}, "StringValue": {"value": (1, "STRING")}}
BATCHING = {
    "max_batch_size": (1, "Int64Value"),
    "batch_timeout_micros": (2, "Int64Value"),
    "max_enqueued_batches": (3, "Int64Value"),
    "num_batch_threads": (4, "Int64Value"),
    "thread_pool_name": (5, "StringValue"),
    "allowed_batch_sizes": (6, "INT64", "REPEATED"),
    "pad_variable_length_inputs": (7, "BOOL"),
}
MONITORING = {
    "PrometheusConfig": {"enable": (1, "BOOL"), "path": (2, "STRING")},
    "MonitoringConfig": {"prometheus_config": (1, "PrometheusConfig")},
}


def message(name, messages):
    """The class of a message, of fields as above."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=f"{name}.proto", package=name, syntax="proto3")
    for own, fields in messages.items():
        made = file.message_type.add(name=own)
        for field, (number, kind, *label) in fields.items():
            entry = made.field.add(name=field, number=number)
            entry.label = getattr(kinds, f"LABEL_{label[0] if label else 'OPTIONAL'}")
            if kind in messages:
                entry.type, entry.type_name = kinds.TYPE_MESSAGE, f".{name}.{kind}"
            else:
                entry.type = getattr(kinds, f"TYPE_{kind}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{name}.{name}"))


def parsed(file, kind):
    return text_format.Parse((FOLDER / file).read_text("utf-8"), kind())


def test_batches_are_of_allowed_sizes():
    batching = {**WRAPPERS, "BatchingParameters": BATCHING}
    found = parsed("batching.config", message("BatchingParameters", batching))
    assert list(found.allowed_batch_sizes) == sorted(set(found.allowed_batch_sizes))
    assert found.allowed_batch_sizes[-1] == found.max_batch_size.value
    assert found.num_batch_threads.value >= 1
    assert found.pad_variable_length_inputs


def test_the_server_and_prometheus_name_the_same_files_and_paths():
    compose = yaml.safe_load((FOLDER / "docker-compose.yaml").read_text("utf-8"))
    serving, prometheus = compose["services"]["serving"], compose["services"]["prometheus"]
    for argument in serving["command"]:
        if "_file=" in argument:
            assert (FOLDER / Path(argument.partition("=")[2]).name).is_file(), argument
    for service in (serving, prometheus):
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    (job,) = yaml.safe_load((FOLDER / "prometheus.yaml").read_text("utf-8"))["scrape_configs"]
    monitoring = parsed("monitoring.config", message("MonitoringConfig", MONITORING))
    assert monitoring.prometheus_config.enable
    assert job["metrics_path"] == monitoring.prometheus_config.path
    assert job["static_configs"] == [{"targets": ["serving:8501"]}]
