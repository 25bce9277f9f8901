"""Errata of the PRI paper that can be computed: docs/theory/errata.md says nothing that these do not show."""

import math
from pathlib import Path

import numpy as np
import pytest

import cmdpkit as ck

PAGE = (Path(__file__).parents[2] / "docs" / "theory" / "errata.md").read_text(encoding="utf-8")
# The printed kernel, rows (step, next state), columns (state, action).
PRINTED = """
.3112981 .35107633 .27041442 .42626645 .04822746 .14663183 .4031534 .19783729 .39831431
.23314339 .32491141 .48360071 .24246185 .19021328 .43972054 .26457139 .21435897 .26256243
.45555851 .32401226 .24598487 .3312717 .76155926 .41364763 .33227521 .58780374 .33912326
.32676574 .35320112 .1300059 .35453348 .32114495 .40817113 .1762648 .30097191 .48437535
.11092341 .28034838 .45655888 .23441632 .2847394 .235718 .17239783 .37273618 .08000908
.56231085 .3664505 .41343525 .4110502 .39411565 .35611087 .65133738 .32629191 .43561556
"""


def test_the_caption_of_the_kernel_table_has_rows_and_columns_exchanged():
    table = np.array([float(x) for x in PRINTED.split()]).reshape(2, 3, 9)  # step, next state, (state, action)
    assert table.sum(axis=1) == pytest.approx(1.0, abs=4e-8)
    drawn = ck.load("paper/synthetic").P[:2].reshape(2, 9, 3).transpose(0, 2, 1)
    off = np.abs(table - drawn)
    assert np.unravel_index(off.argmax(), off.shape) == (1, 2, 2), "step 2, next state 3, (state 1, action 3)"
    assert f"{drawn[1, 2, 2]:.8f}" == "0.41343523" and np.sort(off.ravel())[-2] < 1e-8
    assert f"{ck.load('paper/synthetic').r[0, 2, 1]:.8f}" == "0.20724288"


@pytest.mark.parametrize("K", [10, 100, 10**6])
def test_bretagnolle_huber_with_the_printed_sign_is_impossible(K):
    """P(A) + Q(not A) is at most 2; exp(D) / 2 stays below that only by chance, exp(-D) / 2 always."""
    D = -K / 2 * math.log(1 - 4 / K)
    assert pytest.approx(2, rel=0.3) == D and math.exp(-D) / 2 < 0.5 < 2 < math.exp(D) / 2 + 2 * math.exp(-D)
    # For A = everything, P(A) + Q(not A) = 1 < exp(D) / 2: the printed form fails for a trivial event.
    assert math.exp(D) / 2 > 1 > math.exp(-D) / 2


@pytest.mark.parametrize("p", [0.5, 0.7])
@pytest.mark.parametrize("H", [6, 11])
def test_sigma_min_of_the_lower_bound_family_is_a_third(p, H):
    """Both restrictions of the only decision that matters, by hand: v alone, and u alone."""
    best = ck.solve(ck.load(f"paper/lower-bound:p={p},H={H}")).value
    v_alone, u_alone = best - 0.0, (H - 1) / 3 - 0.0  # reward lost with v, utility missed with u
    assert v_alone == pytest.approx((H - 1) * (1 - 2 / (3 * (1 + p))))
    assert min(v_alone, u_alone) == pytest.approx((H - 1) / 3)


def test_counts_of_episodes_and_actions():
    assert 6 * 5 * 5 + 1 == 151 and "151" in PAGE
    for HSA in (1, 27, 750):
        assert 4 + 2 * 2 * 4 * HSA <= 20 * HSA, "one loop of votes: usage, and two tests of 4 votes of two runs"
        assert 4 * HSA * 4 * 4 == 64 * HSA, "two loops: times 4 log K once more"
