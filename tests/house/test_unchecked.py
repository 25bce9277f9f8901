"""The check that every compiled function is run with bounds checking finds those that are not."""

import os

from unchecked import SOURCE, functions, unchecked


def test_a_function_is_unchecked_without_a_file_in_the_cache_or_with_one_that_is_older_than_its_source(tmp_path):
    source, cache = tmp_path / "source", tmp_path / "cache"
    source.mkdir()
    cache.mkdir()
    (source / "steps.py").write_text(
        "@compiled\ndef first(x):\n    return x\n\n\n"
        "@njit(cache=True)\ndef second(x):\n    return x\n\n\n"
        "@embedded\ndef part(x):\n    return x\n\n\n"
        "def plain(x):\n    return x\n"
    )
    assert unchecked(cache, source) == ["steps.py:1 first", "steps.py:6 second"]
    for name in ("steps.first-1.py311.nbi", "steps.second-6.py311.nbi"):
        (cache / name).touch()
    assert unchecked(cache, source) == []
    os.utime(cache / "steps.second-6.py311.nbi", (0, 0))
    assert unchecked(cache, source) == ["steps.py:6 second"]


def test_names_and_lines_of_compiled_functions_are_those_that_numba_gives_to_its_files():
    from cmdpkit.simulate.simulator import _fill

    found = dict(functions(SOURCE / "simulate" / "simulator.py"))
    assert found["_fill"] == _fill.py_func.__code__.co_firstlineno
