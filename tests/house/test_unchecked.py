"""The check that every compiled function is run with bounds checking finds those that are not."""

import numpy as np

from cmdpkit.model.compiled import Compiled
from cmdpkit.simulate import simulator
from unchecked import SOURCE, functions, unchecked


def test_a_function_is_unchecked_if_no_code_in_the_cache_is_made_of_it(tmp_path, monkeypatch):
    folder = SOURCE / "simulate"
    named = {name for name, _ in functions(folder / "simulator.py")}
    assert {"_fill", "reset", "step"} <= named

    def left():
        return {line.split()[1] for line in unchecked(tmp_path) if line.startswith("simulate/simulator.py")}

    assert left() == named
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    fill = Compiled(simulator._fill.plain, inline=False)
    fill(np.array([0, 2]), np.array([0.5, 0.5]), np.ones(2), np.arange(2), np.zeros((2, 2), np.int64))
    assert "_fill" in named - left(), "it was compiled, with all parts of it"
