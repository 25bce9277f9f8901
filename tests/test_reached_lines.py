"""Lines that notes call reached are those that the interpreter names when it is asked to trace."""

import ast
import sys
from importlib.util import module_from_spec, spec_from_file_location

from reached_lines import Notes, NotingLoader

STATEMENTS = '''"""A module."""
from __future__ import annotations
import contextlib
from functools import cache
LARGE = 2
class Pair:
    """Two."""
    first: int
    second: int = 1
    @property
    def total(self):
        """Their sum."""
        return self.first + self.second
    def unused(self):
        return self.first
@cache
def kind(x):
    """What it is."""
    match x:
        case int():
            return "number"
        case str():
            return "text"
    return "other"
def divided(x, y):
    try:
        z = x / y
    except ZeroDivisionError:
        z = 0
    except TypeError:
        raise
    else:
        z += 1
    finally:
        x = 0
    return z
def looped(n):
    for i in range(n):
        if i == 0:
            continue
        elif i > LARGE:
            break
        else:
            n -= 1
    else:
        n = -1
    while n > 0:
        n -= 1
    with contextlib.suppress(ValueError):
        raise ValueError
        n = 3
    return [x for x in range(n) if x], lambda: n
async def never():
    return 1
pair = Pair()
pair.first = 1
pair.total
kind("a")
divided(1, 2)
divided(1, 0)
looped(2)
looped(9)
'''


def lines_traced(path):
    """Lines of a file for which the interpreter calls the function given to `sys.settrace`."""
    lines, before = set(), sys.gettrace()

    def trace(frame, event, _):
        if frame.f_code.co_filename == str(path) and event == "line":
            lines.add(frame.f_lineno)
        return trace

    code = compile(path.read_text(), str(path), "exec", dont_inherit=True)
    sys.settrace(trace)
    try:
        exec(code, {"__name__": "statements"})
    finally:
        sys.settrace(before)
    return lines


def test_notes_name_the_lines_that_tracing_names_and_never_more(tmp_path, monkeypatch):
    monkeypatch.setattr(NotingLoader, "reached", {})
    path = tmp_path / "statements.py"
    path.write_text(STATEMENTS)
    spec = spec_from_file_location("statements", path, loader=NotingLoader("statements", str(path)))
    spec.loader.exec_module(module_from_spec(spec))
    noted = {line for line, x in enumerate(NotingLoader.reached[str(path)]) if x}
    text = STATEMENTS.splitlines()
    starts = {x.lineno for x in ast.walk(ast.parse(STATEMENTS)) if isinstance(x, ast.stmt)}
    missed = lines_traced(path) - noted
    assert noted - lines_traced(path) == set()
    # Docstrings are no statements to be noted; a case or handler that was tried in vain does not count as reached.
    assert {text[line - 1].strip() for line in missed} == {'"""A module."""', '"""Two."""', "case int():"}
    assert len(noted & starts) > 40
    unreached = {"return self.first", 'return "number"', "raise", "n = 3", "return 1"}
    assert not unreached & {text[line - 1].strip() for line in noted}


def test_compiled_functions_are_left_as_they_are():
    for decorator in ("compiled", "inlined", "embedded", "njit(cache=True)"):
        function = f"@{decorator}\ndef f(x):\n    return x"
        assert ast.unparse(Notes().visit(ast.parse(function))).endswith(f"\n{function}")
    plain = "@compiled_twice\ndef f(x):\n    return x"
    assert "    __reached__[3] = 1\n" in ast.unparse(Notes().visit(ast.parse(plain)))
