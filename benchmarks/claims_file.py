"""Claims of one's own, in a YAML file.

claims:
  - claim: mine is above VSE0
    source: my paper          # the claims of a source are one family of tests
    more: my_method           # names of runs without -seed<seed>
    less: vse0
    metrics: [t2i_recall_1, rsum]
    kind: more                # or no_more, or alike
    effects: {rsum: 5}        # what the source reports, in percent
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import yaml
from paper_claims import COUNTS, Claim
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from keras_xmr.metrics import DIRECTIONS
from keras_xmr.utils.errors import UserError

METRICS = (
    "rsum",
    "truth_rsum",
    *(f"{side}_{name}" for side in DIRECTIONS for name in COUNTS if name != "rsum"),
)
"""What claims may be about."""


class _Claim(BaseModel):
    model_config = ConfigDict(extra="forbid")

    claim: str
    source: str = "claims"
    more: str
    less: str
    metrics: list[str] = Field(min_length=1)
    kind: Literal["more", "no_more", "alike"] = "more"
    effects: dict[str, float] = Field(default_factory=dict)

    @field_validator("metrics", "effects")
    @classmethod
    def _known(cls, metrics: Any) -> Any:
        for metric in metrics:
            if metric not in METRICS:
                raise ValueError(f"unknown metric {metric!r}; there are {', '.join(METRICS)}")
        return metrics


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    claims: list[_Claim] = Field(min_length=1)


def read_claims(path: Path) -> list[Claim]:
    """Reads claims.

    Args:
        path: The YAML file.

    Raises:
        UserError: If it cannot be read, or something in it is wrong.
    """
    try:
        told = _File.model_validate(yaml.safe_load(path.read_text("utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not valid YAML: {error}") from None
    except ValidationError as error:
        mistakes = [
            f"  {'.'.join(map(str, one['loc'])) or 'file'}: {one['msg']}" for one in error.errors()
        ]
        raise UserError("\n".join([f"{path}:", *mistakes])) from None
    return [
        Claim(own.source, own.claim, own.more, own.less, tuple(own.metrics), own.kind, own.effects)
        for own in told.claims
    ]
