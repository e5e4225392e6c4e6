"""Differences with intervals, and verdicts that are corrected for the number of comparisons.

A page is a family: all of its comparisons are corrected together (Holm 1979), once, by `Family`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import scipy.stats

from keras_xmr.metrics.bootstrap import Difference as Interval
from keras_xmr.metrics.bootstrap import Estimate, holm

ALPHA = 0.05
CONFIRMED, REVERSED, NOT_OBSERVED, UNDECIDED = "confirmed", "reversed", "not observed", "undecided"


@dataclass(frozen=True)
class Difference:
    """A difference in percent, its standard error and degrees of freedom."""

    value: float
    error: float
    freedom: float

    @classmethod
    def of(cls, values: np.ndarray, *parts: tuple[float, float]) -> Difference:
        """The mean of values that are drawn, which varies in further ways.

        Args:
            values: The values.
            *parts: Further variances of the mean, of seeds, with their degrees of freedom.
        """
        own = (float(values.var(ddof=1)) / len(values), float(len(values) - 1))
        return cls.with_parts(float(values.mean()), own, *parts)

    @classmethod
    def with_parts(cls, value: float, *parts: tuple[float, float]) -> Difference:
        """A value whose variance has parts.

        Args:
            value: The value.
            *parts: Variances with their degrees of freedom. All are added; degrees of freedom are
                by Welch and Satterthwaite.
        """
        variances, freedoms = np.array(parts).T
        total = variances.sum()
        spread = (variances**2 / freedoms).sum()
        freedom = total**2 / spread if spread else freedoms[0]
        return cls(value, float(total**0.5), float(freedom))

    @classmethod
    def crossed(cls, values: np.ndarray) -> Difference:
        """The mean of values (seeds, queries), where seeds and queries are drawn.

        The variance over seeds is their own. Noise that both share counts twice, so the interval
        errs on the wide side.
        """
        return cls.of(values.mean(axis=0), *variance_of_seeds(values.mean(axis=1)))

    def _quantile(self, share: float) -> float:
        return float(scipy.stats.t.ppf(share, self.freedom))

    @property
    def half(self) -> float:
        """Half of the 95 % interval."""
        return self._quantile(0.975) * self.error

    @property
    def visible(self) -> float:
        """The smallest difference that a test finds with a probability of 80 %."""
        return (self._quantile(0.975) + self._quantile(0.8)) * self.error

    @property
    def p_value(self) -> float:
        """Two-sided, by Student's t."""
        if self.error == 0:
            return float(self.value == 0)
        return float(2 * scipy.stats.t.sf(abs(self.value) / self.error, self.freedom))

    def __str__(self) -> str:
        low, high = self.value - self.half, self.value + self.half
        return f"{self.value:+.2f} [{low:+.2f}, {high:+.2f}]"


@dataclass(frozen=True)
class Estimated:
    """A difference over resampled queries and over seeds."""

    estimate: Estimate

    @cached_property
    def _difference(self) -> Interval:
        return self.estimate.difference()

    @property
    def value(self) -> float:
        """The difference."""
        return self.estimate.value

    @property
    def half(self) -> float:
        """Half of the 95 % interval."""
        return (self._difference.high - self._difference.low) / 2

    @property
    def visible(self) -> float:
        """The smallest difference that a test finds with a probability of 80 %."""
        return self.estimate.smallest_effect()

    @property
    def p_value(self) -> float:
        """Two-sided."""
        return self._difference.p_value

    def __str__(self) -> str:
        found = self._difference
        return f"{found.value:+.1f} [{found.low:+.1f}, {found.high:+.1f}]"


@dataclass(frozen=True)
class Permuted:
    """A difference with a test of its own, such as one by permutations.

    Attributes:
        value: The difference.
        drawn: The difference over resamples, (draws,).
        p_value: Two-sided.
    """

    value: float
    drawn: np.ndarray
    p_value: float

    @property
    def half(self) -> float:
        """Half of the 95 % interval of the resamples."""
        low, high = np.quantile(self.drawn, [0.025, 0.975])
        return float(high - low) / 2

    @property
    def visible(self) -> float:
        """The smallest difference that a test finds with a probability of 80 %."""
        return float(self.drawn.std(ddof=1) * scipy.stats.norm.ppf([0.975, 0.8]).sum())

    def __str__(self) -> str:
        low, high = np.quantile(self.drawn, [0.025, 0.975])
        return f"{self.value:+.2f} [{low:+.2f}, {high:+.2f}]"


Compared = Difference | Estimated | Permuted


def variance_of_seeds(means: np.ndarray) -> list[tuple[float, float]]:
    """The variance of the mean of runs, and its degrees of freedom; none of one run."""
    count = len(means)
    return [(float(means.var(ddof=1)) / count, count - 1.0)] if count > 1 else []


@dataclass
class Family:
    """The comparisons of one page.

    Attributes:
        differences: By name what is compared; numbers of Holm are known when all are in it.
    """

    differences: dict[tuple[str, ...], Compared] = field(default_factory=dict)

    def add(self, difference: Compared, *name: str) -> None:
        """Adds a comparison under a name that no other has."""
        if name in self.differences:
            raise ValueError(f"a family has {name} twice")
        self.differences[name] = difference

    def p_values(self) -> dict[tuple[str, ...], float]:
        """By name the p-values after Holm's correction for all comparisons."""
        corrected = holm([each.p_value for each in self.differences.values()])
        return dict(zip(self.differences, map(float, corrected), strict=True))

    def verdict(self, *name: str, expected: float | None = None) -> str:
        """Whether a difference is above 0 (`CONFIRMED`) or below it after the correction.

        Args:
            *name: Its name.
            expected: A published difference: `NOT_OBSERVED` if the interval excludes it.
        """
        difference = self.differences[name]
        if self.p_values()[name] < ALPHA:
            return CONFIRMED if difference.value > 0 else REVERSED
        excluded = expected is not None and abs(expected - difference.value) > difference.half
        return NOT_OBSERVED if excluded else UNDECIDED

    def rows(self) -> list[list[str]]:
        """A row per comparison: its name, itself, what would have been seen, p, and the verdict."""
        p_values = self.p_values()
        return [
            [*name, str(one), f"{one.visible:.2f}", format_p(p_values[name]), self.verdict(*name)]
            for name, one in self.differences.items()
        ]

    def cells(self, *name: str) -> list[str]:
        """The difference with its interval, and p after the correction."""
        return [str(self.differences[name]), format_p(self.p_values()[name])]


def format_p(p: float) -> str:
    """A p-value with three digits."""
    return "<0.001" if p < 0.001 else f"{p:.3f}"
