"""Compiled code is kept on disk, marked with what it is made of, and compiled again when any of that has changed."""

import os
import subprocess
import sys
from textwrap import dedent
from typing import NamedTuple

import numpy as np
import pytest
from numba import njit, typeof

from cmdpkit.model.compiled import COMPILE_METER, Compiled, cache_folder, ingredients, primitive
from cmdpkit.operators import steps
from cmdpkit.operators.rows import Rows, expect


class Package:
    """A program of three modules in a folder: a function, its parts and a constant, and a NamedTuple."""

    def __init__(self, folder, code):
        self.folder, self.code = folder, code
        pairs = "from typing import NamedTuple\n\nclass Pair(NamedTuple):\n    a: float\n    b: float\n"
        parts = """
            from cmdpkit.model.compiled import compiled, primitive
            from pairs import Pair
            SHIFT = 10.0
            @compiled(inline=True)
            def shifted(x):
                return x + SHIFT
            @primitive
            def of(pair):
                pass
            @of.of(Pair)
            def _of(pair):
                return 100.0
            """
        main = """
            from cmdpkit.model.compiled import COMPILE_METER, compiled
            from pairs import Pair
            from parts import of, shifted
            @compiled
            def total(pair):
                return of(pair) + shifted(pair.a) + pair.b
            if __name__ == "__main__":
                import main
                print(main.total(Pair(1.0, 2.0)), COMPILE_METER.functions > 0)
            """
        for name, text in (("pairs", pairs), ("parts", parts), ("main", main)):
            (folder / f"{name}.py").write_text(dedent(text))

    def run(self):
        """What the program prints: a number, and whether anything was compiled."""
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(self.code)}
        command = [sys.executable, "main.py"]
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=True)
        value, was_compiled = done.stdout.split()
        return float(value), was_compiled == "True"

    def edit(self, name, before, after):
        path = self.folder / name
        assert before in path.read_text()
        path.write_text(path.read_text().replace(before, after))

    def files(self):
        return sorted(path.name for path in self.code.rglob("*.nb*"))


@pytest.fixture
def package(tmp_path):
    (tmp_path / "given").mkdir()
    return Package(tmp_path / "given", tmp_path / "code")


def test_edits_of_whatever_the_code_is_made_of_are_noticed_and_nothing_grows(package):
    assert package.run() == (113.0, True)
    assert package.run() == (113.0, False), "another process reads it from the disk"
    files = package.files()
    assert len(files) == 2
    edits = [
        ("parts.py", "return x + SHIFT", "return x - SHIFT", 93.0),  # a part in another module
        ("parts.py", "SHIFT = 10.0", "SHIFT = 20.0", 83.0),  # a constant of the part
        ("parts.py", "return 100.0", "return 200.0", 183.0),  # the body of a primitive
        ("main.py", "+ pair.b", "+ 2 * pair.b", 185.0),  # the function itself
        ("pairs.py", "a: float\n    b: float", "b: float\n    a: float", 184.0),  # the order of fields
    ]
    for name, before, after, expected in edits:
        package.edit(name, before, after)
        assert package.run() == (expected, True)
        assert package.files() == files, "the code was written over the old one"
    assert package.run() == (expected, False)


def test_comments_and_lines_do_not_count(package):
    package.run()
    package.edit("parts.py", "SHIFT = 10.0", "# A comment.\n\n\nSHIFT = 10.0  # another")
    assert package.run() == (113.0, False)


def test_code_that_was_compiled_when_a_module_had_another_name_does_no_harm(package):
    """A file names the modules of the arguments, and cannot be read when one of them is gone."""
    package.run()
    for name in ("parts.py", "main.py"):
        package.edit(name, "from pairs import", "from others import")
    (package.folder / "pairs.py").rename(package.folder / "others.py")
    assert package.run() == (113.0, True)


def test_damaged_files_are_written_anew(tmp_path, monkeypatch):
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    for _ in range(2):
        assert Compiled(lambda x: x + 2.0, inline=False)(1.0) == 3.0
        for path in tmp_path.rglob("*.nb*"):
            path.write_bytes(path.read_bytes()[:20])
    before = COMPILE_METER.functions
    assert Compiled(lambda x: x + 2.0, inline=False)(1.0) == 3.0
    assert COMPILE_METER.functions == before + 1
    assert Compiled(lambda x: x + 2.0, inline=False)(1.0) == 3.0
    assert COMPILE_METER.functions == before + 1


def test_a_folder_that_disappears_does_not_end_a_computation(tmp_path, monkeypatch):
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path / "code"))
    function = Compiled(lambda x: x + 3.0, inline=False)
    cache_folder().rmdir()
    assert function(1.0) == 4.0


def test_code_with_a_function_of_the_user_is_not_kept(tmp_path, monkeypatch):
    """It names an address of this process, and no other one could read it."""
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    assert Compiled(lambda f, x: f(x), inline=False)(njit(lambda x: 2 * x), 2.0) == 4.0
    assert not list(tmp_path.rglob("*.nbc"))


def test_no_address_of_this_process_is_among_the_ingredients():
    """Else code would never be found on disk."""
    found = ingredients(steps.induction.plain)
    assert "cmdpkit.operators.steps.bellman" in {name for _, name, _ in found}
    assert " at 0x" not in repr(found)


def test_only_bodies_of_primitives_for_types_that_occur_are_ingredients():
    """Others depend on what else this process has imported."""

    class Foreign(NamedTuple):
        x: float

    @expect.of(Foreign)
    def _foreign(rows, row, V, x):
        return x

    try:
        kinds = (typeof(Rows(*[np.zeros(1, np.uint64)] * 5)),)
        names = {name for _, name, _ in ingredients(steps.induction.plain, kinds)}
        assert "cmdpkit.operators.rows._array_expect" in names
        assert not any("_foreign" in name for name in names)
        kinds = (*kinds, typeof(Foreign(1.0)))
        assert any("_foreign" in name for _, name, _ in ingredients(steps.induction.plain, kinds))
    finally:
        del expect.bodies[Foreign]


def test_a_primitive_without_a_body_for_a_type_says_so():
    @primitive
    def size(thing):
        pass

    with pytest.raises(TypeError, match="size has no body for float"):
        size(1.0)
