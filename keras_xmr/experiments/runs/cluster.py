"""The processes that train one model together, one per machine, as TF_CONFIG lists them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass

from keras_xmr.utils.errors import ConfigError

TF_CONFIG = "TF_CONFIG"

_EXAMPLE = (
    '{"cluster": {"worker": ["host0:5555", "host1:5555"]}, "task": {"type": "worker", "index": 0}}'
)
_ROLES = ("chief", "worker")


@dataclass(frozen=True)
class Cluster:
    """The workers of a training, and which of them this process is.

    Attributes:
        number: The number of this process; 0 is the chief, which alone writes files.
        addresses: Addresses host:port of all workers, by number; empty for a single process.
    """

    number: int = 0
    addresses: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """Number of workers."""
        return max(len(self.addresses), 1)

    @property
    def is_chief(self) -> bool:
        """Whether this is the one that writes."""
        return self.number == 0


def cluster_of(environment: Mapping[str, str] = os.environ) -> Cluster:
    """Returns the workers that TF_CONFIG names; this process alone if it is not set.

    Args:
        environment: The environment variables.

    Raises:
        ConfigError: If it cannot be understood.
    """
    text = environment.get(TF_CONFIG, "").strip()
    if not text:
        return Cluster()
    try:
        content = json.loads(text)
        cluster = {role: tuple(content["cluster"].get(role, ())) for role in _ROLES}
        others = sorted(content["cluster"].keys() - set(_ROLES))
        role, index = content["task"]["type"], int(content["task"]["index"])
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ConfigError(
            f"{TF_CONFIG} is not understood: {text[:200]}\nIt is such as {_EXAMPLE}"
        ) from None
    if others or len(cluster["chief"]) > 1:
        raise ConfigError(
            f"{TF_CONFIG}: the cluster has {others[0] if others else 'several of chief'}; "
            "a training has workers, and one chief at most"
        )
    if role not in _ROLES or not 0 <= index < len(cluster[role]):
        raise ConfigError(
            f"{TF_CONFIG}: the task is {role} {index}, which the cluster does not have: "
            + ", ".join(f"{len(cluster[name])} of {name}" for name in _ROLES)
        )
    number = index + (len(cluster["chief"]) if role == "worker" else 0)
    return Cluster(number, cluster["chief"] + cluster["worker"])
