"""Fingerprints of what every learner does, to show that a change of structure has changed no result.

    python -m bench._identical before.json                        # one line per learner, environment and preset
    python -m bench._identical after.json before.json             # the same, then the differences
    python -m bench._identical after.json before.json --algos=cl-pri,opsrl --envs=random,machine

Each entry holds two digests: ``play`` of everything that does not depend on the optimum (violations, multipliers, the
returned policy), and ``regret`` of the curves that do. The curve of certified gaps is left out, because versions differ
in where they compute it. Only public names are used, so that the script runs on old
and new versions of the package alike. With ``--algos`` or ``--envs`` only these are played and compared.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

import cmdpkit as ck
from cmdpkit import envs, learners

EPISODES = 150
LONGER = {"cl-pri": 1500, "mf-pri": 6000}  # episodes of learners that go through several phases
STEPS = 2000  # of worlds without episodes
PRESETS = ("practical", "printed", "theory", "paper", "authors")
CASES = {
    **{name: (name, "none") for name in envs.names() if name != "gym/taxi"},
    "random, three constraints": ("random?", "none"),
    "paper/synthetic, noisy": ("paper/synthetic", "bernoulli"),
    "machine, noisy": ("machine", "bernoulli"),
}


def model_of(case: str) -> ck.CMDP:
    if case.startswith("random,"):
        return envs.build("random", S=6, A=3, H=4, N=3, conflict=0.5, seed=11)
    return envs.build(CASES[case][0])


def digest(arrays: dict[str, np.ndarray]) -> str:
    found = hashlib.sha256()
    for name in sorted(arrays):
        found.update(name.encode())
        found.update(np.ascontiguousarray(arrays[name], dtype=float).tobytes())
    return found.hexdigest()[:16]


def entry(record: ck.RunRecord) -> dict[str, str]:
    regret = {name: x for name, x in record.curves.items() if "regret" in name}
    rest = {name: x for name, x in record.curves.items() if name not in regret and name != "certified_gap"}
    return {"play": digest(rest | {"\0policy": record.policy.pi}), "regret": digest(regret)}


def fingerprints(algos: list[str], cases: list[str]) -> dict[str, dict[str, str]]:
    found = {}
    for case in cases:
        cmdp = model_of(case)
        stepwise = not cmdp.criterion.has_horizon
        for algo in algos:
            length = STEPS if stepwise else LONGER.get(algo, EPISODES)
            for preset in PRESETS:
                try:
                    asked = {
                        "steps" if stepwise else "episodes": length,
                        "seed": 5,
                        "preset": preset,
                        "noise": CASES[case][1],
                    }
                    record = ck.learn(cmdp, algo, **asked)
                except ValueError as error:
                    if "preset" not in str(error):
                        found[f"{algo} {preset} {case}"] = {"refused": type(error).__name__}
                    continue
                found[f"{algo} {preset} {case}"] = entry(record)
    return found


def main(out: str, before: str | None = None, *, algos: str = "", envs: str = "") -> int:
    asked = algos.split(",") if algos else learners.names()
    cases = [case for case in CASES if not envs or case in envs.split(",")]
    found = fingerprints(asked, cases)
    Path(out).write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{len(found)} fingerprints written to {out}")
    if before is None:
        return 0
    old = json.loads(Path(before).read_text(encoding="utf-8"))
    old = {name: x for name, x in old.items() if name in found or not (algos or envs)}
    for what in ("play", "regret"):
        differ = [name for name in sorted(old) if old[name].get(what) != found.get(name, {}).get(what)]
        print(f"{what}: {len(old) - len(differ)} of {len(old)} equal" + "".join(f"\n  {name}" for name in differ))
    return int(any(x != found.get(name) for name, x in old.items()))


if __name__ == "__main__":
    files = [x for x in sys.argv[1:] if not x.startswith("--")]
    options = dict(x.removeprefix("--").split("=", 1) for x in sys.argv[1:] if x.startswith("--") and "=" in x)
    if not 1 <= len(files) <= 2 or len(files) + len(options) != len(sys.argv[1:]) or set(options) - {"algos", "envs"}:
        sys.exit(__doc__)
    sys.exit(main(*files, **options))
