"""The paper's lower bound, and what a closed loop does to it: violation and regret against K, on log axes.

Two instances of `paper/lower-bound`, p = 1/2 and p = 1/2 + 1 / sqrt K, cannot be told apart in K episodes. *Open loop*
is the published refinement and identification, started with the right action set and without tightening: the error of
its weights adds up, to order sqrt K. *Closed loop* is `cl-pri`, from nothing: it corrects by what it realised. *Rule*
plays u while the realised violation is at most -rho, and v otherwise (docs/theory/pri.md): it learns nothing at all.
*Known optimum* plays the optimal policy from the first episode on: what it shows is sampling noise alone.

`python -m bench lower_bound` prints the table and draws docs/figures/lower_bound.png.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import cmdpkit as ck
from cmdpkit.learners import Source, Spec, load
from cmdpkit.learners.pri.refine import Refinement
from cmdpkit.model.tolerances import SUPPORT
from cmdpkit.simulate.distribution import play_episodes
from cmdpkit.simulate.random import stream
from cmdpkit.simulate.simulator import Simulator

H = 10
EPISODES = (10**4, 10**5, 10**6, 10**7)
AT_ONCE = 10**6  # episodes of a fixed policy whose totals are held in memory
FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "lower_bound.png"
INSTANCES = {"p = 1/2": lambda K: 0.5, "p = 1/2 + 1/sqrt K": lambda K: 0.5 + K**-0.5}
COLUMNS = ("realised violation", "realised regret", "exact regret")


def known_optimum(cmdp: ck.CMDP, source: Source, K: int, seed: int) -> None:
    """No learning at all."""
    sol, sim, rng, totals = ck.solve(cmdp), Simulator.of(cmdp), stream(seed), np.zeros(1 + cmdp.N)
    for first in range(0, K, AT_ONCE):
        played = play_episodes(sim, sol.policy, rng, min(AT_ONCE, K - first))
        totals += [played.reward.sum(), *played.utilities.sum(axis=1)]
    source.meter.add(K, np.append(sol.value, cmdp.signs * sol.utilities), totals)


def closed_loop(cmdp: ck.CMDP, source: Source, K: int, seed: int) -> None:
    """`cl-pri` as it comes."""
    load("cl-pri")(Spec.of(cmdp, K)).run(source, stream(seed), K)


def open_loop(cmdp: ck.CMDP, source: Source, K: int, seed: int) -> None:
    """Refinement for K / 2 episodes, then identification, in the optimum's own action set, with bounds below only."""
    spec = Spec.of(cmdp, K)
    p = load("pri")(spec, preset="printed", K=K // 2, eps_rho=0.0, band=False).params
    D = ck.solve(cmdp).policy.pi > SUPPORT
    phase = Refinement(spec, p, D, D.astype(float), spec.rho)
    rng, out, done = stream(seed), np.empty((1 + spec.N, K)), 0
    while done < K:
        done += phase.play(source, rng, out[:, done:])


def rule(cmdp: ck.CMDP, source: Source, K: int, seed: int) -> None:
    """The rule that only watches what was realised; violation is counted in sixths of H - 1."""
    most, p, rng = cmdp.H - 1, float(cmdp.P[0, 0, 1, 2]), np.random.default_rng(seed)
    violation, plays, lucky = 0, 0, 0
    for u in rng.random(K):
        violation += 2
        if violation > 0:
            plays, lucky, violation = plays + 1, lucky + (u < p), violation - (6 if u < p else 3)
    source.meter.add(K - plays, np.array([most, 0.0]), np.array([(K - plays) * most, 0.0]))
    source.meter.add(plays, np.array([0.0, most * (1 + p) / 2]), np.array([0.0, most * (plays + lucky) / 2]))


LOOPS = {"known optimum": known_optimum, "open loop": open_loop, "rule": rule, "closed loop": closed_loop}


def measured(loop: str, instance: str, K: int, seed: int) -> list[float]:
    """What one run of K episodes cost; see COLUMNS."""
    cmdp = ck.load("paper/lower-bound", H=H, p=INSTANCES[instance](K))
    source = Source.of(cmdp, ck.solve(cmdp).value)
    LOOPS[loop](cmdp, source, K, seed)
    tally = source.meter.tally()
    return [float(tally.realised.violation[0]), tally.realised.regret, tally.weak.regret]


def results(seeds: int, episodes: tuple[int, ...]) -> dict[tuple[str, str], np.ndarray]:
    """[K, seed, column] by loop and instance; seeds run on threads, because kernels let each other go on."""
    found = {}
    with ThreadPoolExecutor(2) as pool:
        for loop in LOOPS:
            for instance in INSTANCES:
                asked = [(loop, instance, K, seed) for K in episodes for seed in range(seeds)]
                rows = list(pool.map(lambda x: measured(*x), asked))
                found[loop, instance] = np.array(rows).reshape(len(episodes), seeds, len(COLUMNS))
    return found


def root_mean_square(x: np.ndarray) -> np.ndarray:
    """Over seeds, [K, column]: signed errors have a mean near 0, it is their size that grows."""
    return np.sqrt((x**2).mean(axis=1))


def exponent(episodes: tuple[int, ...], sizes: np.ndarray) -> str:
    """Of K, fitted to sizes on log axes; nothing where there is nothing to fit."""
    if sizes.min() <= 1e-6 * sizes.max() or sizes.max() < 1e-3:
        return "-"
    return f"{np.polyfit(np.log(episodes), np.log(sizes), 1)[0]:.2f}"


def show(found: dict[tuple[str, str], np.ndarray], episodes: tuple[int, ...], seeds: int) -> None:
    print(f"paper/lower-bound, H = {H}: root mean square over {seeds} seeds [mean ± its standard error]")
    print(f"{'':34}{'K':>12}" + "".join(f"{name:>30}" for name in COLUMNS))
    for (loop, instance), x in found.items():
        rms, mean, se = root_mean_square(x), x.mean(axis=1), x.std(axis=1) / np.sqrt(seeds)
        for i, K in enumerate(episodes):
            cells = [f"{rms[i, j]:,.0f} [{mean[i, j]:+,.0f} ± {se[i, j]:,.0f}]" for j in range(len(COLUMNS))]
            print(f"{loop + ', ' + instance:34}{K:>12,}" + "".join(f"{cell:>30}" for cell in cells))
        print(f"{'':34}{'exponent':>12}" + "".join(f"{exponent(episodes, sizes):>30}" for sizes in rms.T))


def draw(found: dict[tuple[str, str], np.ndarray], episodes: tuple[int, ...], path: Path) -> None:
    """Two panels, violation and regret, one line per loop and instance."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    colours = dict(zip(LOOPS, ("0.6", "tab:red", "tab:green", "tab:blue"), strict=True))
    lines = dict(zip(INSTANCES, ("o-", "s--"), strict=True))
    for column, axis in enumerate(axes):
        for (loop, instance), x in found.items():
            sizes = root_mean_square(x)[:, column]
            axis.loglog(episodes, sizes, lines[instance], color=colours[loop], label=f"{loop}, {instance}")
        axis.set(xlabel="episodes K", ylabel=f"{COLUMNS[column]}, root mean square")
    labels = axes[0].get_legend_handles_labels()
    figure.legend(*labels, fontsize="x-small", loc="outside lower center", ncols=4)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main(seeds: int = 10, episodes: tuple[int, ...] = EPISODES, path: Path = FIGURE) -> None:
    found = results(seeds, episodes)
    show(found, episodes, seeds)
    draw(found, episodes, path)
    print(f"drawn: {path.name}")
