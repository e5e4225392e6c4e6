"""Losses of several replicas: the computation of one of them, compared with the whole loss.

A replica takes its items as queries: its rows against all columns, and all rows against its
columns. Its computation is counted in its graph, forward and backward: operations of all matrix
products, and bytes of all tensors that it makes. It runs alone here, so its times are those of one
machine of several; replicas that share a processor are not faster.

usage: python benchmarks/replicas.py [LOSS ...]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from losses import CASES, SIDES, Case, Size, gradient, made_up, read
from measuring import Row, by_products, compare, show, size_of

SIZES: dict[str, Size] = {
    "nt_xent": (1024, 1, 1024),
    "mahalanobis_contrastive": (1024, 1, 1024),
    "soft_contrastive": (1024, 3, 256),
    "uniformity": (1024, 3, 256),
}
REPLICAS = (2, 4, 8)


def rows(smoke: bool = False, names: list[str] | None = None) -> Iterator[Row]:
    """Some losses, by the number of replicas."""
    for name in names or (["soft_contrastive"] if smoke else SIZES):
        size = (8, 2, 4) if smoke else SIZES[name]
        inputs, case = made_up(*size), CASES[name]
        whole = share(name, inputs, 1)
        every, all_bytes = counted(whole, case, inputs)
        for count in REPLICAS[:1] if smoke else REPLICAS:
            own = share(name, inputs, count)
            operations, made = counted(own, case, inputs)
            yield compare(
                f"{name}, one of {count} replicas",
                "B {}, J {}, D {}: ".format(*size)
                + f"{operations / every:.3f} of {every / 1e9:.3g} billion operations, "
                + f"{made / all_bytes:.3f} of {size_of(all_bytes)}",
                gradient(own, case, inputs),
                gradient(whole, case, inputs),
                "the whole loss, on every replica",
                repeats=3,
                **by_products(operations),
            )


def share(name: str, inputs: Any, replicas: int) -> Callable[[Any], Any]:
    """The share of the first of several replicas in a loss, as a function of `made_up`."""
    import tensorflow as tf

    from keras_xmr import losses, matchers
    from keras_xmr.losses.queries_base import Queries
    from keras_xmr.model.objective import Objective
    from keras_xmr.model.replicas import Part, shares

    case = CASES[name]
    objective = Objective([getattr(losses, case.loss)(**dict(case.options))], [1.0])
    matcher = getattr(matchers, case.matcher)() if case.matcher else lambda image, caption: None

    def value(inputs: Any) -> Any:
        image, caption = (
            {k: tf.convert_to_tensor(inputs[s][k]) for k in read(case, s)} for s in SIDES
        )
        batch = inputs["image"]["mean"].shape[0]
        related = {"positives": tf.eye(batch, dtype=tf.bool)}
        whole = Queries(lambda: matcher(image, caption), image, caption, related)
        if replicas == 1:
            return objective(whole.scores, image, caption, related)[0]
        part = Part(0, batch // replicas, batch)  # type: ignore[arg-type]
        own = tuple({k: part.take(v) for k, v in side.items()} for side in (image, caption))
        queries = shares(whole, (part, part), own, matcher, lambda own: tf.fill([replicas], own))
        return objective.compute_replica_share(whole, *queries, replicas, tf.constant(0))[0]

    return value


def counted(loss: Callable[[Any], Any], case: Case, inputs: Any) -> tuple[float, float]:
    """Operations of matrix products, and bytes of tensors, in the graph of a loss and gradients."""
    import tensorflow as tf

    variables = [inputs[side][key] for side in SIDES for key in read(case, side)]

    def step() -> Any:
        with tf.GradientTape() as tape:
            value = loss(inputs)
        return tape.gradient(value, variables, unconnected_gradients="zero")

    operations = made = 0.0
    for node in tf.function(step, autograph=False).get_concrete_function().graph.get_operations():
        made += sum(_bytes(tensor) for tensor in node.outputs)
        if node.type == "MatMul":
            across = node.inputs[0].shape[0 if node.get_attr("transpose_a") else 1]
            operations += 2.0 * across * node.outputs[0].shape.num_elements()
    return operations, made


def _bytes(tensor: Any) -> float:
    return (tensor.shape.num_elements() or 0) * tensor.dtype.size if tensor.shape.rank else 0.0


if __name__ == "__main__":
    show(rows(names=sys.argv[1:]))
