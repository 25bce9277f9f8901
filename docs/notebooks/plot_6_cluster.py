"""
From one machine to a dask cluster
==================================

The same experiment on one process, on all cores and on a cluster: the records are equal to the bit, and nothing
is done twice. Here a cluster of two workers on this machine stands for yours.
"""

# %%
# The experiment
# --------------
#
# Two problems, two algorithms, two seeds: eight runs. A run is what was asked, and its address is a digest of it.

import tempfile
from pathlib import Path

import cmdpkit as ck

experiment = ck.Experiment.of(
    {
        "name": "one-machine-to-a-cluster",
        "environments": ["paper/synthetic", "paper/grid"],
        "algorithms": ["triple-q", "dual-q"],
        "episodes": 2_000,
        "seeds": 2,
    }
)
runs = experiment.runs()
print(len(runs), "runs; the first one is", runs[0].key)

# %%
# One process
# -----------

folder = Path(tempfile.mkdtemp())
outcome = ck.execute(runs[:4], experiment.worlds, folder / "runs", executor="serial")
print(len(outcome.runs) - outcome.skipped, "runs done")

# %%
# A cluster
# ---------
#
# On real machines you start ``dask scheduler`` on one and ``dask worker tcp://...:8786`` on the others, and give that
# address; with ``dask-jobqueue`` the workers are jobs of SLURM or PBS. All machines must see the folder. Here the
# cluster is made on the spot. (In a script, write this below ``if __name__ == "__main__":``, because the new
# processes import the script.)

from distributed import LocalCluster

with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs="CRITICAL") as cluster:
    address = cluster.scheduler_address
    outcome = ck.execute(runs, experiment.worlds, folder / "runs", executor="dask", address=address)
print(len(outcome.runs) - outcome.skipped, "runs done,", outcome.skipped, "were there already")

# %%
# What the cluster did is equal to the bit to what one
# process does:

_ = ck.execute(runs, experiment.worlds, folder / "alone", executor="serial")
for run in runs:
    here, there = (ck.load_record(folder / name, run.key) for name in ("alone", "runs"))
    assert all((here.curves[name] == there.curves[name]).all() for name in here.curves)
print("all", len(runs), "records are equal")

# %%
# Look at the results
# -------------------
#
# From any machine that sees the folder, also while the experiment is still running:

study = ck.Study.load(folder / "runs")
study.plot("overview")

# %%
# And as numbers:

for row in study.table():
    print(f"{row['env']}, {row['algo']}: regret {row['regret']:,.0f} over {row['seeds']} seeds")
