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
