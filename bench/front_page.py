"""The picture of the README and of the page of algorithms: the regret of learning, and an exact solution.

Left, regret and violation of three model-free and two model-based learners on the synthetic problem of the PRI paper.
Right, the exact solution of that problem: the policy with its one stochastic decision, and the optimal value against
the bound, whose slope is the price. `python -m bench front_page` runs the five algorithms, writes what they did to
docs/figures/front.json and into the tables of both pages, and draws docs/figures/front.svg and front-phone.svg (two
rows); `python -m bench.front_page draw` only draws.
"""

import json
import re
import sys
from pathlib import Path

import numpy as np

import cmdpkit as ck

PROBLEM = "paper/synthetic"
EPISODES = 1_000_000
SEEDS = range(5)
ALGORITHMS = {  # label, kind, colour and settings
    "pri": ("PRI, as published", "model-free", "#9a6a00", {}),
    "triple-q": ("Triple-Q, authors' constants", "model-free", "#7b4ba0", {"preset": "authors"}),
    "mf-pri": ("MF-PRI, this package", "model-free", "#3f7d3a", {}),
    "ps-cmdp": ("PS-CMDP, posterior sampling", "model-based", "#b03a5b", {}),
    "cl-pri": ("CL-PRI, this package", "model-based", "#0b6e8f", {}),
}
READ_AT = sorted({round(10 ** (k / 8)) for k in range(24, 49)})
FIGURES = Path(__file__).parent.parent / "docs" / "figures"


def measured() -> dict[str, object]:
    """Mean curves over the seeds, and the spread of what stands at the end."""
    runs = {}
    for name, (*_, settings) in ALGORITHMS.items():
        records = [
            ck.learn(PROBLEM, name, episodes=EPISODES, seed=seed, readings=READ_AT, **settings) for seed in SEEDS
        ]
        at = np.searchsorted(records[0].curves["episode"], READ_AT)
        regret = np.array([record.curves["regret"][at] for record in records])
        violation = np.array([record.curves["violation"][0][at] for record in records])
        runs[name] = {
            "regret": regret.mean(0).round(1).tolist(),
            "violation": violation.mean(0).round(1).tolist(),
            "final regret": regret[:, -1].round(1).tolist(),
            "final violation": violation[:, -1].round(1).tolist(),
            "policy lacks": [float(f"{record.optimum - record.policy_value:.4g}") for record in records],
            "policy utility": [float(f"{record.policy_utilities[0]:.6g}") for record in records],
        }
        print(name, runs[name]["final regret"], runs[name]["final violation"])
    return {"problem": PROBLEM, "episodes": READ_AT, "seeds": list(SEEDS), "runs": runs}


def draw(data: dict, file: Path, rows: int = 1) -> None:
    """One picture of four panels, in one row or in two."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams |= {
        "svg.hashsalt": "cmdpkit",
        "font.family": "DejaVu Sans",
        "font.size": 9.5,
        "svg.fonttype": "path",
    }
    import matplotlib.pyplot as plt

    size, widths = ((10.6, 3.4), (1.15, 1.15, 0.85, 1.05)) if rows == 1 else ((5.4, 6.2), (1, 1))
    fig, axes = plt.subplots(rows, 4 // rows, figsize=size, width_ratios=widths, layout="constrained")
    axes = axes.ravel()
    for ax, what, title in (
        (axes[0], "regret", "Regret"),
        (axes[1], "violation", "Violation"),
    ):
        for name, (label, kind, colour, _) in ALGORITHMS.items():
            ax.plot(data["episodes"], data["runs"][name][what], color=colour, label=f"{label} ({kind})", lw=2)
        ax.axhline(0, color="0.55", lw=0.8)
        ax.set_xscale("log")
        ax.set_yscale("symlog", linthresh=100)
        ax.set_xlabel("episodes")
        ax.set_title(title, fontsize=10.5, loc="left", weight="bold")
        ax.spines[["top", "right"]].set_visible(False)
    axes[1].annotate("below 0: the bound is met", (0.03, 0.05), xycoords="axes fraction", color="0.35", fontsize=8.5)
    fig.legend(
        *axes[0].get_legend_handles_labels(),
        loc="outside lower left",
        ncols=3 if rows == 1 else 1,
        frameon=False,
        fontsize=9,
    )
    fig.get_layout_engine().set(w_pad=0.1)
    _policy(axes[2])
    _price(axes[3])
    fig.savefig(file, metadata={"Date": None, "Creator": None})
    plt.close(fig)


def _policy(ax) -> None:
    """The optimal decisions: one square per step and state, split where the policy draws."""
    cmdp = ck.load(PROBLEM)
    pi = ck.solve(cmdp).policy.pi
    colours = ("#dcd6f0", "#bfe3ea", "#f6dfb4")
    for h in range(cmdp.H):
        for s in range(cmdp.S):
            left = 0.0
            for a in range(cmdp.A):
                if pi[h, s, a] > 1e-9:
                    box = (h + left * 0.94, s), 0.94 * pi[h, s, a], 0.9
                    ax.add_patch(_rectangle(*box, colours[a]))
                    ax.text(box[0][0] + box[1] / 2, s + 0.45, f"{a + 1}", ha="center", va="center")
                    left += pi[h, s, a]
    [drawn] = ck.solve(cmdp).stochastic_decisions()
    place = (drawn.step - 1, cmdp.states.index(drawn.state) if drawn.state in cmdp.states else drawn.state - 1)
    ax.add_patch(_rectangle(place, 0.94, 0.9, "none", edge="#c0392b"))
    shares = ", ".join(f"{p:.0%} action {a}" for a, p in drawn.probabilities.items())
    ax.text(0, -0.14, shares, color="#c0392b", fontsize=8.5, va="bottom")
    ax.set(xlim=(-0.05, cmdp.H), ylim=(cmdp.S, -0.45), xlabel="step", ylabel="state")
    ax.set_xticks([h + 0.47 for h in range(cmdp.H)], [str(h + 1) for h in range(cmdp.H)])
    ax.set_yticks([s + 0.45 for s in range(cmdp.S)], [str(s + 1) for s in range(cmdp.S)])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_title("Best policy", fontsize=10.5, loc="left", weight="bold")


def _rectangle(corner, width, height, colour, edge="white"):
    from matplotlib.patches import Rectangle

    return Rectangle(corner, width, height, facecolor=colour, edgecolor=edge, lw=2 if edge != "white" else 1)


def _price(ax) -> None:
    """The optimal value against the bound, and the tangent whose slope is the price."""
    cmdp = ck.load(PROBLEM)
    sol = ck.solve(cmdp)
    bounds = np.linspace(1.5, 2.085, 60)
    ax.plot(bounds, ck.tradeoff(cmdp, "utility", n=60, low=1.5, high=2.085).values, color="#0b6e8f", lw=2)
    bound, price = 2.0, float(sol.shadow_prices[0])
    around = np.array([bound - 0.25, bound + 0.085])
    ax.plot(around, sol.value - price * (around - bound), color="#c0392b", lw=1.2, ls="--")
    ax.plot([bound], [sol.value], "o", color="#c0392b")
    ax.annotate(
        f"utility at least {bound:g}:\nvalue {sol.value:.3f},\nprice {price:.2f} per unit",
        (bound, sol.value),
        (0.05, 0.08),
        textcoords="axes fraction",
        arrowprops={"arrowstyle": "-", "color": "0.5"},
    )
    ax.set(xlabel="bound on the utility")
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_title("Price of the bound", fontsize=10.5, loc="left", weight="bold")


def rows(data: dict) -> dict[str, str]:
    """A line of the table of both pages for every algorithm, by its label."""
    found = {}
    for name, (label, kind, *_) in ALGORITHMS.items():
        run = data["runs"][name]
        sums = [run["final regret"], run["final violation"]]
        shown = [f"{np.mean(x):,.0f} ({min(x):,.0f} … {max(x):,.0f})" for x in sums]
        kept = sum(utility >= 2 for utility in run["policy utility"])
        numbers = " | ".join([*shown, f"{max(run['policy lacks']):.4f}"]).replace("-", "−")
        found[label] = f"| {label} | {kind} | {numbers} | {kept} of {len(SEEDS)} |"
    return found


def fill_in(page: Path, data: dict) -> None:
    """Put the present numbers into the table of a page."""
    text = page.read_text(encoding="utf-8")
    for label, row in rows(data).items():
        text = re.sub(rf"^\| {re.escape(label)} \|.*$", row, text, flags=re.MULTILINE)
    page.write_text(text, encoding="utf-8")


def main() -> None:
    if sys.argv[1:] != ["draw"]:
        data = measured()
        (FIGURES / "front.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        for page in (FIGURES.parent / "algorithms" / "index.md", FIGURES.parent.parent / "README.md"):
            fill_in(page, data)
    data = json.loads((FIGURES / "front.json").read_text(encoding="utf-8"))
    draw(data, FIGURES / "front.svg")
    draw(data, FIGURES / "front-phone.svg", rows=2)


if __name__ == "__main__":
    main()
