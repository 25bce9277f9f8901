"""Treating a chronic disease: a cheap toxic drug, an expensive mild one, or waiting, under two expected budgets.

Once a month a patient is given one of two drugs or none. Treatment slows the disease and wears the patient out; waiting
lets the body recover and the disease advance. The standard drug is cheap and toxic, the targeted one works better, is
gentler and costs four times as much, so a clinic with a limit on toxicity and a limit on spending needs both. Disease
and toxicity move by one level at most and independently of each other, with these probabilities per month:

========  =======  ========  ==============  ===============  =====
drug      disease  disease   toxicity rises  toxicity falls   price
          better   worse
========  =======  ========  ==============  ===============  =====
wait      0.05     0.30      0.00            0.50             0
standard  0.30     0.10      0.50            0.10             1
targeted  0.40     0.05      0.20            0.25             4
========  =======  ========  ==============  ===============  =====

States: "stage/toxicity": remission, mild, moderate or severe, with toxicity none, low, medium or high; 16 in all.
Actions: wait, standard, targeted; at high toxicity only wait.
Reward: Health of the month: 1 in remission, 2/3 mild, 1/3 moderate, 0 severe. The value counts months of full health.
Constraints:
    toxicity: E[sum of the toxicity level, 0 for none to 3 for high] <= toxicity;
    spending: E[sum of prices] <= budget.
Start: moderate/none.
Parameters:
    H : number of months
    toxicity : bound on the summed toxicity level
    budget : bound on the money spent

Waiting all the time causes neither toxicity nor spending, so the Slater slack is the smaller of the two bounds.

Reference: Our own; the numbers are illustrative, not clinical.
"""

from __future__ import annotations

import numpy as np

from cmdpkit.envs._shared import real, whole
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import at_most
from cmdpkit.model.transitions import FloatArray

STAGES = ("remission", "mild", "moderate", "severe")
TOXICITY = ("none", "low", "medium", "high")
DRUGS = ("wait", "standard", "targeted")
BETTER, WORSE = (0.05, 0.30, 0.40), (0.30, 0.10, 0.05)  # the disease, by drug
RISES, FALLS = (0.0, 0.5, 0.2), (0.5, 0.1, 0.25)  # the toxicity, by drug
PRICE = (0.0, 1.0, 4.0)


def build(H: int = 12, toxicity: float = 6.0, budget: float = 20.0) -> CMDP:
    """The patient over ``H`` months, with bounds on toxicity and spending."""
    H, toxicity, budget = whole("H", H, 1), real("toxicity", toxicity, 0), real("budget", budget, 0)
    D, T, A = len(STAGES), len(TOXICITY), len(DRUGS)
    disease = np.array([_chain(D, down, up) for down, up in zip(BETTER, WORSE, strict=True)])  # [a, d, d']
    wear = np.array([_chain(T, down, up) for down, up in zip(FALLS, RISES, strict=True)])  # [a, t, t']
    P = np.einsum("adD,atT->dtaDT", disease, wear).reshape(D * T, A, D * T)

    stage, level = (x.ravel() for x in np.indices((D, T)))  # of every state
    each = np.ones((D * T, A))
    states = [f"{d}/{t}" for d in STAGES for t in TOXICITY]
    return CMDP(
        P,
        each * (1 - stage / (D - 1))[:, None],
        mu=states.index("moderate/none"),
        horizon=H,
        actions=(level[:, None] < T - 1) | (np.arange(A) == DRUGS.index("wait")),
        constraints=[at_most("toxicity", toxicity, each * level[:, None]), at_most("spending", budget, each * PRICE)],
        exact=True,
        states=states,
        action_names=DRUGS,
    )


def _chain(n: int, down: float, up: float) -> FloatArray:
    """A walk on n levels that stays where a step would leave them."""
    M = np.zeros((n, n))
    for i in range(n):
        M[i, max(i - 1, 0)] += down
        M[i, min(i + 1, n - 1)] += up
        M[i, i] += 1 - down - up
    return M
