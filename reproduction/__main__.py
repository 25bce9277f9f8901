"""`python -m reproduction`: run the paper again and print its claims with verdicts."""

import argparse
from dataclasses import replace
from pathlib import Path

from reproduction import accounting, claims, departures, figures, growth, lower_bound, pictures, runs

PARTS = (*runs.PARTS, "lower-bound", "departures")  # the last two need no runs
SEEDS, QUICK_SEEDS = 10, 3


def main(arguments=None):
    """Make the runs that the folder lacks, and write reproduction.md, report.html and figures/ into it."""
    asked = _parsed(arguments)
    parts = [part for part in PARTS if part in (asked.what or PARTS)]
    seeds = QUICK_SEEDS if asked.quick else asked.seeds
    studies = runs.carried_out([part for part in parts if part in runs.PARTS], seeds, asked.out, asked.workers)
    text = report(parts, studies, seeds)
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "reproduction.md").write_text(text, encoding="utf-8")
    print(text)
    experiments = [studies[part] for part in ("synthetic", "grid") if part in studies]
    if experiments:
        both = replace(experiments[0], records=tuple(record for x in experiments for record in x.records))
        print(both.to_html(asked.out / "report.html", overwrite=True))
        print(*pictures.write_pictures(both, asked.out / "figures"), sep="\n")


def report(parts, studies, seeds):
    """All tables that were asked for, in Markdown."""
    groups = {part: study.groups() for part, study in studies.items()}
    bounds = lower_bound.measured() if "lower-bound" in parts else ()
    published = [group for part in ("synthetic", "grid") for group in groups.get(part, ())]
    found = claims.claims_of(groups, bounds)
    said = [f"{seeds} seeds of every algorithm; intervals are those of 95 % over seeds.\n"] if groups else []
    said += [claims.claims_text(found)] if found else []
    said += [figures.figures_text(figures.compared(published))] if published else []
    said += [accounting.accounts_text(accounting.accounts(groups["synthetic"]))] if "synthetic" in groups else []
    said += [growth.phases_text(group) for group in groups.get("grid", ()) if group.run.algo == "pri"]
    said += [lower_bound.lower_bound_text(bounds)] if bounds else []
    said += [growth.table1_text(groups["table1"])] if "table1" in groups else []
    return "\n".join(said + ([departures.departures_text()] if "departures" in parts else []))


def _parsed(arguments):
    parser = argparse.ArgumentParser(prog="python -m reproduction", description=main.__doc__)
    parser.add_argument("--what", action="append", choices=PARTS, help="only this part; may be given several times")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="independent runs of every algorithm; by default 10")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_SEEDS} seeds; every run has its full length")
    parser.add_argument("--out", type=Path, default=Path("runs/paper"), help="keep everything here")
    parser.add_argument("--workers", type=int, help="runs at once; by default one per core")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
