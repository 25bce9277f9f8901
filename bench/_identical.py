"""Fingerprints of what every learner does, to show that a change of structure has changed no result.

    python -m bench._identical before.json       # writes one line per learner, environment and preset
    python -m bench._identical after.json before.json   # the same, then the differences

Each entry holds two digests: ``play`` of everything that does not depend on the optimum (violations, multipliers, the
policy handed over), and ``regret`` of the curves that do. Only public names are used, so that the script runs on old
and new versions of the package alike.

One learner is expected to differ from version 0.1: ``cl-pri`` with ``memory="none"`` (``pri practical`` at that time)
has had another warm-up since, forgets differently, and limits its prices in another way.
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
PRESETS = ("practical", "theory", "paper", "authors")
RENAMED = {"cl-pri": ("pri", "practical")}  # a learner's name now: its name and preset in older versions
PARAMS = {"cl-pri": {"memory": "none"}}  # parameters with which a learner does what it did in older versions
EPISODIC = [name for name in envs.names() if hasattr(envs.build(name), "H")]
CASES = {
    **{name: (name, "none") for name in EPISODIC if name != "gym/taxi"},
    "random, three constraints": ("random?", "none"),
    "paper/synthetic, noisy": ("paper/synthetic", "bernoulli"),
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
    rest = {name: x for name, x in record.curves.items() if name not in regret}
    return {"play": digest(rest | {"\0policy": record.policy.pi}), "regret": digest(regret)}


def fingerprints() -> dict[str, dict[str, str]]:
    found = {}
    for case in CASES:
        cmdp = model_of(case)
        for algo in learners.names():
            for preset in PRESETS:
                try:
                    asked = {"episodes": EPISODES, "seed": 5, "preset": preset, "noise": CASES[case][1]}
                    record = ck.learn(cmdp, algo, **asked, **PARAMS.get(algo, {}))
                except ValueError as error:
                    if "preset" not in str(error):
                        found[key(algo, preset, case)] = {"refused": type(error).__name__}
                    continue
                found[key(algo, preset, case)] = entry(record)
    return found


def key(algo: str, preset: str, case: str) -> str:
    algo, preset = RENAMED.get(algo, (algo, preset))
    return f"{algo} {preset} {case}"


def main(out: str, before: str | None = None) -> int:
    found = fingerprints()
    Path(out).write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{len(found)} fingerprints written to {out}")
    if before is None:
        return 0
    old = json.loads(Path(before).read_text(encoding="utf-8"))
    for what in ("play", "regret"):
        differ = [name for name in sorted(old) if old[name].get(what) != found.get(name, {}).get(what)]
        print(f"{what}: {len(old) - len(differ)} of {len(old)} equal" + "".join(f"\n  {name}" for name in differ))
    return int(old != found)


if __name__ == "__main__":
    files = sys.argv[1:]
    if not 1 <= len(files) <= 2 or any(name.startswith("-") for name in files):
        sys.exit(__doc__)
    sys.exit(main(*files))
