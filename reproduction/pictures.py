"""The figures of the paper, drawn from runs made here, as PNG files with fixed names."""

from pathlib import Path

import cmdpkit as ck

RETURNED = ("pri", "cl-pri")  # algorithms whose policies are drawn next to the optimum


def write_pictures(study, folder):
    """Regret, violation, multipliers, and on a grid the policies; such files are replaced. Returns their paths."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    envs = dict.fromkeys(record.run.env for record in study.records)
    return [path for env in envs for path in _of_problem(study.only(envs=env), env, Path(folder))]


def _of_problem(study, env, folder):
    drawn = {
        "regret-violation": study.plot("overview"),
        "regret-violation-log": study.plot("overview", scale="symlog"),
        "multiplier": study.plot("multiplier", scale="log"),
    }
    cmdp = ck.load(env)
    if cmdp.grid is not None:
        drawn["policy-optimum"] = ck.solve(cmdp).plot()
        drawn |= {f"policy-{algo}": study.only(algos=algo).plot("policy") for algo in RETURNED}
    return [_saved(figure, folder / f"{env.replace('/', '-')}-{name}.png") for name, figure in drawn.items()]


def _saved(figure, path):
    figure.savefig(path, dpi=150)
    return path
