"""Models in ONNX Runtime: memory of their activations."""

from __future__ import annotations

import resource

import numpy as np
import onnx
from onnx import TensorProto, helper

from keras_xmr.search.embedder.sessions import Graph

NUMBERS = 1 << 24


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def test_the_last_call_frees_the_memory_of_activations(tmp_path):
    nodes = [
        helper.make_node("Expand", ["x", "shape"], ["many"]),
        helper.make_node("ReduceSum", ["many"], ["sum"]),
    ]
    x, total = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "sum")
    )
    shape = helper.make_tensor_value_info("shape", TensorProto.INT64, [1])
    graph = helper.make_graph(nodes, "sums", [x, shape], [total])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, tmp_path / "sums.onnx")
    sums = Graph(tmp_path / "sums.onnx")

    def run(count, last=False):
        inputs = {"x": np.ones(1, np.float32), "shape": np.array([count])}
        assert sums(inputs, last=last)["sum"].item() == count

    run(1000)  # ONNX Runtime never frees what it takes first.
    before = resident()
    run(NUMBERS)
    assert resident() > before + 3 * NUMBERS
    run(NUMBERS, last=True)
    assert resident() < before + NUMBERS
