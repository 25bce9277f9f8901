"""Run records made by hand, for tests of everything that reads them: plausible curves, without learning anything."""

import zlib

import numpy as np

import cmdpkit as ck
from cmdpkit.records.record import Certificate, Run, RunRecord

EXPONENT = {"pri": 0.5, "triple-q": 0.8, "opt-cmdp": 0.6}
PRI = ("pri", "cl-pri")
EPISODES = 1_000_000


def checkpoints(episodes: int) -> np.ndarray:
    """Log-spaced and linear checkpoints together, the last one included."""
    even, log = np.linspace(0, episodes, 41)[1:], np.geomspace(1, episodes, 41)
    return np.unique(np.concatenate((even, log)).round()).astype(float)


def two_bounds() -> ck.CMDP:
    """A queue-like model with an "at least" and an "at most", and names that need escaping."""
    return ck.CMDP.from_function(
        states=["idle", "<b>busy</b>", "full & late"],
        actions=["serve", 'rest "now"'],
        start="idle",
        horizon=4,
        step=lambda s, a: (
            {"idle": 0.4, "<b>busy</b>": 0.6} if a == "serve" else {"<b>busy</b>": 0.5, "full & late": 0.5}
        ),
        reward=lambda s, a: 1.0 if a == "serve" else 0.3,
        constraints=[
            ck.at_most("late <i>jobs</i>", 0.6, lambda s, a: float(s == "full & late")),
            ck.at_least("rest", 1.0, lambda s, a: float(a != "serve")),
        ],
    )


def make_record(
    env: str,
    algo: str,
    seed: int,
    cmdp: ck.CMDP | None = None,
    *,
    episodes: int = EPISODES,
    preset: str = "practical",
    params: dict[str, float] | None = None,
    blind: bool = False,
    optimum=None,
) -> RunRecord:
    """A record of a run that never was. ``blind``: there was no model to compare with, only what was observed."""
    cmdp = ck.load(env) if cmdp is None else cmdp
    best = ck.solve(cmdp) if optimum is None else optimum
    rng = np.random.default_rng([zlib.crc32(f"{env} {algo} {preset}".encode()), seed])
    share = {"pri": 0.0, "cl-pri": 0.0, "opt-cmdp": 0.02}.get(algo, 0.15) * rng.uniform(0.8, 1.2)
    policy = ck.Policy.of(cmdp, (1 - share) * best.policy.pi + share * ck.Policy.uniform(cmdp).pi)
    values = ck.evaluate(cmdp, policy)
    run = Run(env, algo, episodes, seed, preset, params or {}, "" if blind else cmdp.fingerprint())
    third = episodes // 3
    return RunRecord(
        run=run,
        constraints=cmdp.constraints,
        optimum=None if blind else best.value,
        curves=_curves(algo, cmdp, best, episodes, blind, rng),
        policy=policy,
        policy_value=None if blind else values.v,
        policy_utilities=None if blind else values.w,
        decisions=tuple(policy.stochastic_decisions(ck.occupancy(cmdp, policy).sum(axis=-1))),
        certificate=Certificate(
            0.95,
            third,
            (best.value - 0.02, best.value + 0.01),
            tuple((w - 0.02, w + 0.02) for w in values.w.tolist()),
            tuple(None if algo in PRI else True for _ in cmdp.constraints),
        ),
        phases=(("pruning", 0), ("identification", third), ("refinement", 2 * third)) if algo in PRI else (),
        internals=_internals(algo, cmdp, third),
        notes=("the theory's bonus exceeds the horizon here: <vacuous>",) if algo == "triple-q" else (),
        seconds=float(rng.uniform(1, 3)),
        versions={"cmdpkit": ck.__version__, "numpy": np.__version__},
    )


def _curves(algo, cmdp, best, episodes, blind, rng):
    k = checkpoints(episodes)
    power = EXPONENT.get(algo, 0.5)
    noise = np.cumsum(rng.normal(size=len(k))) * 0.01
    regret = (2 + rng.normal() * 0.1) * k**power * (1 + noise)
    miss = np.array(
        [(0.5 + 0.2 * n + rng.normal() * 0.05) * k**power * (1 - 1.4 * k / episodes) for n in range(cmdp.N)]
    )
    miss = miss.reshape(cmdp.N, len(k))
    curves = {"episode": k}
    if not blind:
        curves |= {"regret": regret, "violation": miss}
        curves |= {
            "strong_regret": regret * 1.3 + 5 * np.sqrt(k),
            "strong_violation": np.maximum.accumulate(np.abs(miss), axis=-1),
        }
        curves["realised_regret"] = regret + np.cumsum(rng.normal(size=len(k))) * 20
    curves["realised_violation"] = miss + np.cumsum(rng.normal(size=miss.shape), axis=-1) * 20
    if algo != "opt-cmdp":
        wave = 1 + 0.3 * np.cos(np.log(k) * 3) * (1 - np.log(k) / np.log(episodes))
        curves["multiplier"] = best.shadow_prices[:, None] * wave * (1 - np.exp(-k / episodes * 40)) + 0.01
    return curves


def _internals(algo, cmdp, third):
    if algo not in PRI:
        return {"frames": 251, "frame length": 3981}
    return {
        "base learner": "triple-q",
        "surviving actions": [
            {"step": 1, "state": "<script>alert(1)</script>", "actions": [str(a) for a in cmdp.action_names[:2]]},
            {"step": 2, "state": "x", "actions": ["one"]},
        ],
        "weights": [0.25, 0.75],
        "policies": {"1": {"value": 1.25, "utilities": [0.5]}, "2": {"value": 1.75, "utilities": [0.75]}},
        "identified at episode": third,
        "error budget": 0.05,
    }


def study(env: str = "paper/grid", seeds: int = 3, cmdp: ck.CMDP | None = None, **options) -> list[RunRecord]:
    """Three algorithms, several seeds."""
    cmdp = ck.load(env) if cmdp is None else cmdp
    best = ck.solve(cmdp)
    return [make_record(env, algo, seed, cmdp, optimum=best, **options) for algo in EXPONENT for seed in range(seeds)]
