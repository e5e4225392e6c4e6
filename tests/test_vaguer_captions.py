"""The study of captions that say less and less."""

import numpy as np
import pytest
from benchmark_modules import benchmark

bench = benchmark("vaguer_captions", "studies")


def test_captions_of_a_chain_get_shorter_at_its_ends(bench):
    assert all(len(chain) == 4 for chain in bench.CHAINS)
    assert all(len(c[0].split()) > 8 and len(c[-1].split()) < 7 for c in bench.CHAINS)


def test_steps_at_which_sigma_grows_are_counted(bench):
    sigma = np.zeros((4, 4, 2))
    sigma[:2, :, 0] = [1, 2, 1.5, 3]
    sigma[2:, :, 1] = [1, 2, 3, 2]
    steps = bench.growing_steps(sigma)
    assert [step.value for step in steps] == [1, 0.5, 0.5, pytest.approx(2 / 3)]
    assert steps[0].low == steps[0].high == 1
    with pytest.raises(ValueError, match="not finite"):
        bench.growing_steps(np.full((2, 4, 1), np.nan))
