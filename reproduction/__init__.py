"""The experiments of arXiv 2309.15395 run again, with every claim and every published figure judged by a fixed rule.

An application of the package, which imports public names of it only. `python -m reproduction` (or `make reproduce`)
makes the runs of `runs`, and writes `reproduction.md`, the report of the runs and the paper's figures into a folder.
`judging` has the rules, `figures` the published figures, `claims` the published sentences, `accounting` the identity
that ties regret to violation, `lower_bound`, `growth` and `departures` the other tables.
"""
