"""10,000 records: CPU seconds to write and to load them, and for the table of their study; and the disk they take.

It uses public names only, so `python bench/records.py` of this file also measures an installed earlier version.
"""

import os
import tempfile
import time
from dataclasses import replace

import cmdpkit as ck

RECORDS = int(os.environ.get("CMDPKIT_RECORDS", 10_000))
SEEDS = 20


def main() -> dict[str, float]:
    made = [ck.learn("queue", algo, episodes=2000, seed=0) for algo in ("triple-q", "dual-q")]
    records = [
        replace(record, run=replace(record.run, seed=seed, params={"eta": 1.0 + group}))
        for group in range(RECORDS // (2 * SEEDS))
        for record in made
        for seed in range(SEEDS)
    ]
    with tempfile.TemporaryDirectory() as folder:
        seconds = {"write": 0.0, "load": 0.0, "table": 0.0}
        began = time.process_time()
        for record in records:
            ck.save_record(record, folder)
        seconds["write"] = time.process_time() - began
        sizes = [entry.stat().st_size for entry in os.scandir(folder)]
        began = time.process_time()
        loaded = ck.load_records(folder)
        seconds["load"] = time.process_time() - began
    began = time.process_time()
    rows = ck.Study(loaded).table()
    seconds["table"] = time.process_time() - began
    print(f"{len(loaded):,} records in {len(sizes):,} files, {sum(sizes) / 1e6:.0f} MB; a table of {len(rows)} rows")
    print("CPU seconds: " + ", ".join(f"{name} {x:.1f}" for name, x in seconds.items()))
    return {f"records: {name}, ms each": 1000 * x / RECORDS for name, x in seconds.items()}


if __name__ == "__main__":
    main()
