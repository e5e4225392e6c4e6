"""The size of the gradient of local attention; its numbers are checked against the golden ones."""

import keras
import tensorflow as tf

from keras_xmr.layers.local_attention import LocalAttention


def test_gradient_has_no_copy_of_the_weights_for_each_item() -> None:
    layer = LocalAttention(hidden=7, heads=3)
    features = keras.random.normal((5, 4, 11))
    layer(features)

    @tf.function(autograph=False)
    def gradient(features: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            means, _ = layer(features)
            loss = tf.reduce_sum(means)
        return tape.gradient(loss, layer.trainable_variables)

    shapes = {
        tuple(output.shape)
        for operation in gradient.get_concrete_function(features).graph.get_operations()
        for output in operation.outputs
        if output.shape.rank is not None
    }
    assert (11, 7) in shapes
    assert not {(5, 11, 7), (5, 7, 3)} & shapes
