"""The rooms of the package in the order in which data flows through them."""

# Earlier may not import later.
ORDER = [
    "errors",
    "model",
    "operators",
    "exact",
    "envs",
    "io",
    "simulate",
    "estimate",
    "learners",
    "records",
    "running",
    "results",
    "experiments",
    "cli",
]
