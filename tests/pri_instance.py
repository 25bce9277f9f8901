"""A problem on which PRI is checked, small enough to be solved by hand."""

import numpy as np

import cmdpkit as ck


def easy(copies=1, rho=1.0):
    """Solved by hand. States are drawn anew, whatever is done, so decisions do not interact.

    At (step 1, state 1) the choice is between reward and utility, elsewhere action 2 is best for both; action 3 is
    always worst. With rho = 1 the optimum mixes actions 1 and 2 there half and half: v = 1.6, multiplier 1. With
    copies = 2, every action exists twice.
    """
    r = np.tile([0.2, 0.9, 0.1], (2, 2, 1))
    g = np.tile([0.2, 0.5, 0.1], (2, 2, 1))
    r[0, 0], g[0, 0] = [1.0, 0.0, 0.3], [0.0, 1.0, 0.3]
    r, g = np.tile(r, copies), np.tile(g, copies)
    return ck.CMDP(np.full((2, 2, 3 * copies, 2), 0.5), r, g, rho, [0.5, 0.5])


def support(cmdp):
    """Actions of the optimum, [H, S, A]."""
    return ck.solve(cmdp).policy.pi > 1e-9


# As printed: columns are (state, action) = (1,1), (1,2), ..., (3,3); rows of P are (step, next state).
PRINTED_P = """
.3112981  .35107633 .27041442 .42626645 .04822746 .14663183 .4031534  .19783729 .39831431
.23314339 .32491141 .48360071 .24246185 .19021328 .43972054 .26457139 .21435897 .26256243
.45555851 .32401226 .24598487 .3312717  .76155926 .41364763 .33227521 .58780374 .33912326
.32676574 .35320112 .1300059  .35453348 .32114495 .40817113 .1762648  .30097191 .48437535
.11092341 .28034838 .45655888 .23441632 .2847394  .235718   .17239783 .37273618 .08000908
.56231085 .3664505  .41343525 .4110502  .39411565 .35611087 .65133738 .32629191 .43561556
"""
