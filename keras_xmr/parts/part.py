"""Base classes of layers: with a recorded config, and with a declaration that is checked."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import cache
from typing import Any, Unpack

import keras
from pydantic import ValidationError

from keras_xmr.parts.contracts import Declared, first_mistake
from keras_xmr.parts.keras_state import outer_training
from keras_xmr.parts.option_types import LayerOptions
from keras_xmr.parts.registry import options_are_checked, options_of
from keras_xmr.parts.tensors import Shape, Shapes
from keras_xmr.utils.errors import ArgumentError
from keras_xmr.utils.messages import nearest
from keras_xmr.utils.naming import snake_case


class RecordedLayer(keras.layers.Layer):
    """A layer with the arguments of its constructor as config, defaults included.

    Subclasses are registered with Keras under the name of their package.
    """

    _arguments: dict[str, object]

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        package = cls.__module__.partition(".")[0]
        keras.saving.register_keras_serializable(package=package)(cls)

    def __new__(cls, *args: object, **kwargs: object) -> Any:
        layer = super().__new__(cls, *args, **kwargs)
        # Keras would track a dict that is set as an attribute, before the layer can track any.
        object.__setattr__(layer, "_arguments", _arguments(cls, args, kwargs))
        return layer

    def __init__(self, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        if keras.backend.backend() == "torch":
            from keras_xmr.parts.torch_modules import prepare_module

            prepare_module(self)

    def __deepcopy__(self, memo: dict[int, object]) -> object:
        make, arguments = self.__reduce__()
        copied = memo[id(self)] = make(*deepcopy(arguments, memo))
        return copied

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        """Pickles the layer as Keras saves it; with PyTorch by its options and its state."""
        if keras.backend.backend() != "torch":
            return super().__reduce__()
        from keras_xmr.parts.torch_modules import reduced

        return reduced(self)

    def _track_variables(self) -> None:
        """Makes nothing: PyTorch has each variable as a parameter as soon as it is added."""

    def _setattr_hook(self, name: str, value: object) -> tuple[str, object]:
        if keras.backend.backend() == "torch" and isinstance(value, list | tuple | dict):
            from keras_xmr.parts.torch_modules import register_nested

            register_nested(self, name, value)
        return super()._setattr_hook(name, value)

    def rebuild(self, shapes: dict[str, Shape | Shapes]) -> None:
        """Makes all weights for the shapes that another layer was built for.

        Args:
            shapes: The arguments of `build`.
        """
        self.build(**shapes)

    def builds(self) -> bool:
        """Says whether weights are made by the shapes of inputs, and not all in the constructor."""
        return type(self).build is not RecordedLayer.build

    def build(self, *shapes: Any, **more_shapes: Any) -> None:
        """Makes nothing: layers within this one build themselves when they are first called."""

    def new_dense(
        self, units: int, name: str, width: int | None = None, **options: object
    ) -> keras.layers.Dense:
        """Makes a linear layer in the precision of this one; with its weights, for a `width`."""
        dense = keras.layers.Dense(units, dtype=self.dtype_policy, name=name, **options)
        if width is not None:
            dense.build((None, width))
        return dense

    def new_norm(
        self, name: str, epsilon: float = 1e-5, dtype: object = "float32"
    ) -> keras.layers.LayerNormalization:
        """Makes a layer normalisation over the last axis."""
        return keras.layers.LayerNormalization(epsilon=epsilon, dtype=dtype, name=name)

    def add_scalar(self, name: str, value: float, **options: object) -> keras.Variable:
        """Adds a weight that is one number, which is trained unless `trainable` is false."""
        initializer = keras.initializers.Constant(value)
        return self.add_weight(shape=(), initializer=initializer, name=name, **options)

    def add_fixed(
        self, name: str, shape: tuple[int, ...], initializer: object = "zeros", **options: object
    ) -> keras.Variable:
        """Adds a weight that is not trained, in float32 unless `dtype` is given."""
        options = {"dtype": "float32", **options}
        return self.add_weight(shape, initializer, trainable=False, name=name, **options)

    def get_config(self) -> dict[str, object]:
        return super().get_config() | self._arguments


class Part(Declared, RecordedLayer):
    """A loss, matcher, head or pooling: a layer with a `CONTRACT` and checked options.

    Raises:
        ArgumentError: If an option does not exist, is not of its type, or has no effect with the
            others.

    Attributes:
        compiled: What its calls have compiled; see `keras_xmr.layers.compiled`.
        version: A number that changes with each attribute that is set.
    """

    _contract: Any
    compiled: dict[object, Any]
    version: int = 0

    def __new__(cls, *args: object, **kwargs: object) -> Any:
        _check_names(cls, kwargs)
        part = super().__new__(cls, *args, **kwargs)
        if not options_are_checked(cls):
            _check_options(cls, part._arguments)
        object.__setattr__(part, "_contract", cls.CONTRACT.with_options(part._arguments))
        object.__setattr__(part, "compiled", {})
        return part

    def _setattr_hook(self, name: str, value: object) -> tuple[str, object]:
        object.__setattr__(self, "version", self.version + 1)
        return super()._setattr_hook(name, value)

    def variables_of_call(self) -> list[keras.Variable]:
        """Returns all variables that its call reads."""
        return list(self.variables)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the checked output of `call`; with PyTorch in the mode of the module."""
        if keras.backend.backend() == "torch":
            kwargs.setdefault("training", self.in_training())
            if not self.built:
                self.refuse_late_weights()
        output = super().__call__(*args, **kwargs)
        self.check_output(output)
        return output

    def __repr__(self) -> str:
        cls: type = type(self)
        names = [name for name in options_of(cls).model_fields if name in self._arguments]
        options = ", ".join(f"{name}={self._arguments[name]!r}" for name in names if name != "name")
        return f"{cls.__name__}({options})"

    def refuse_late_weights(self) -> None:
        """Checks that the weights of a first call are not too late for PyTorch's processes.

        Raises:
            ArgumentError: If DistributedDataParallel holds the part already.
        """
        if keras.backend.backend() == "torch":
            from keras_xmr.parts.torch_modules import refuse_late_parameters

            refuse_late_parameters(self)

    def warn_of_late_weights(self) -> None:
        """Warns where an optimizer of PyTorch may lack the weights that a first call has made."""
        if keras.backend.backend() == "torch":
            from keras_xmr.parts.torch_modules import warn_of_late_parameters

            warn_of_late_parameters(self)

    def check_output(self, output: object) -> None:
        """Checks the output of `call`.

        Raises:
            UserError: If it is not an output of this kind of part.
        """

    def in_training(self, training: bool | None = None) -> bool:
        """Says whether dropout, statistics of batches and fresh noise are on.

        Args:
            training: Whether they are. None takes the mode of the outer layer of Keras, if there is
                one; else, with PyTorch, the mode of the module, which `train` and `eval` set, and
                with TensorFlow and JAX false.
        """
        if training is None:
            training = outer_training()
        if training is None:
            return keras.backend.backend() == "torch" and bool(self.training)
        return bool(training)

    @property
    def contract(self) -> Any:
        """The declaration of the part, with its options."""
        return self._contract


def _arguments(
    cls: type, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> dict[str, object]:
    """Names the arguments of a constructor; none if they do not fit its signature."""
    signature = inspect.signature(cls.__init__)  # type: ignore[misc]
    try:
        bound = signature.bind(None, *args, **kwargs)
    except TypeError:  # The constructor itself raises it again.
        return {}
    bound.apply_defaults()
    named = [p.name for p in signature.parameters.values() if p.kind not in _VARIABLE]
    passed_on = {name: value for name, value in kwargs.items() if name in _inherited(cls)}
    return passed_on | {name: bound.arguments[name] for name in named[1:]}


@cache
def _inherited(cls: type) -> set[str]:
    """Returns the names of arguments of the constructors of base classes."""
    bases = [base for base in cls.__mro__[1:] if issubclass(base, RecordedLayer)]
    constructors = [vars(base)["__init__"] for base in bases if "__init__" in vars(base)]
    return {name for made in constructors for name in inspect.signature(made).parameters}


_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _check_names(cls: type, given: Mapping[str, object]) -> None:
    """Checks that arguments of a constructor exist.

    Raises:
        ArgumentError: If one does not; the message names the nearest that does.
    """
    known = set(inspect.signature(cls.__init__).parameters) | _inherited(cls)  # type: ignore[misc]
    for name in given:
        if name not in known | _OF_KERAS:
            options = known - {"self", "args", "kwargs"}
            raise ArgumentError(f"{cls.__name__} has no option {name!r}.{nearest(name, options)}")


_OF_KERAS = {"activity_regularizer", "autocast", "dtype", "name", "trainable"}
"""Arguments of every layer of Keras that parts pass on."""


def _check_options(cls: type, arguments: Mapping[str, object]) -> None:
    section = options_of(cls)
    options = {name: arguments[name] for name in section.model_fields if name in arguments}
    try:
        checked = section.model_validate(options | {"name": snake_case(cls.__name__)})
    except ValidationError as error:
        raise ArgumentError(f"{cls.__name__}{first_mistake(error, section)}") from None
    for name, value in options.items():
        # Configs have texts converted; the constructor computes with what it is given.
        if isinstance(value, str) and isinstance(meant := getattr(checked, name), int | float):
            raise ArgumentError(
                f"{cls.__name__}: {name} is the text {value!r}, not a {type(meant).__name__}: "
                f"{name}={meant!r}"
            )
    for name, why in checked.ineffective():
        raise ArgumentError(f"{cls.__name__}: {name}: {why}")
