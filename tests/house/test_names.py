"""Names that hold anything at all: messages, tables and exports show them escaped and shortened, files keep them."""

import ast
import json
import unicodedata

import numpy as np
import pytest
from typer.testing import CliRunner

import cmdpkit as ck
from cmdpkit.cli.shared import app
from cmdpkit.errors import MAX_SHOWN, CmdpkitError, printable, quoted, shown
from cmdpkit.results.showing import json_text

LONG = "x" * 100_000
HOSTILE = [
    "\x1b[2J\x1b[31mred",  # clears a terminal
    "\x9b31mred",  # the same in one character
    "two\nlines",
    "carriage\rreturn",
    "nul\x00",
    "right \u202eto left",  # reverses what follows
    "zero\u200bwidth",
    "line\u2028separator",
    "half a character \ud800",
    LONG,
]
ids = [quoted(name)[:30] for name in HOSTILE]


def harmless(text: str) -> bool:
    """Whether a terminal and a reader are safe, by the categories of Unicode and not by our own functions."""
    return all(c == "\n" or unicodedata.category(c) not in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"} for c in text)


def model(name: str, action: str = "go") -> ck.CMDP:
    return ck.CMDP(
        np.full((2, 1, 2), 0.5),
        [[1.0], [0.0]],
        constraints=[ck.at_most(f"cost {name}", 9.0, [[1.0], [0.0]])],
        horizon=2,
        states=[name, "plain"],
        action_names=[action],
    )


@pytest.mark.parametrize("name", HOSTILE, ids=ids)
def test_a_shown_name_is_one_short_harmless_line(name):
    for text in (shown(name), quoted(name), quoted([name]), quoted({name: name})):
        assert harmless(text) and "\n" not in text and len(text) <= MAX_SHOWN
    assert quoted("plain name") == "'plain name'" and shown("plain name é 状态") == "plain name é 状态"


def test_what_cannot_even_be_written_down_is_shown_as_its_type():
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    assert quoted(Broken()) == "<Broken>" and shown(Broken()) == "<Broken>"
    assert quoted(10**6000) == "<int>"  # Python refuses to write so many digits


@pytest.mark.parametrize("name", HOSTILE, ids=ids)
def test_messages_about_a_name_are_short_and_harmless(name):
    cmdp = model(name)
    attempts = [
        lambda: cmdp.state_index(name + "!"),
        lambda: cmdp.state_index("plan"),
        lambda: cmdp.with_bounds(**{name: 1.0}),
        lambda: cmdp.restrict(np.zeros((2, 1), dtype=bool)),
        lambda: ck.solve(cmdp.with_bounds(**{f"cost {name}": -1.0})),
        lambda: ck.CMDP(np.full((2, 1, 2), 0.4), [[1.0], [0.0]], horizon=2, states=[name, "plain"]),
        lambda: ck.CMDP.from_function(
            start=name, horizon=2, actions=["go"], step=lambda s, a: {s: 0.5}, reward=lambda s, a: 0.0
        ),
        lambda: ck.load(name),
        lambda: ck.load(f"queue:{name}=3"),
        lambda: ck.at_most(name, float("nan")),
    ]
    for attempt in attempts:
        with pytest.raises(ValueError, match=r".") as caught:
            attempt()
        assert harmless(str(caught.value)) and len(str(caught.value)) < 500
    assert harmless(repr(cmdp)) and len(repr(cmdp)) < 200


def test_an_error_is_harmless_whoever_words_it():
    assert str(CmdpkitError("\x1b[31mfirst\nsecond")) == "\\x1b[31mfirst\nsecond"
    assert printable("as it is\n") == "as it is\n"


@pytest.mark.parametrize("name", [x for x in HOSTILE if "\ud800" not in x and "\x00" not in x])
@pytest.mark.parametrize("suffix", [".toml", ".json", ".csv", ".npz"])
def test_files_keep_any_name_to_the_letter(name, suffix, tmp_path):
    cmdp = model(name, action=name)
    assert ck.read_model(ck.write_model(cmdp, tmp_path / f"model{suffix}")) == cmdp


@pytest.mark.parametrize("name", [x for x in HOSTILE if "\ud800" not in x])
def test_a_python_module_holds_names_as_literals_and_nothing_else(name, tmp_path):
    evil = f'{name}"""\nimport os\n'
    text = ck.write_policy(ck.solve(model(evil, action=name)).policy, tmp_path / "policy.py").read_text("utf-8")
    assert harmless(text)
    tree = ast.parse(text)
    imports = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert imports == {"base64", "bisect", "random", "sys", "zlib"}
    space: dict[str, object] = {"__name__": "exported"}
    exec(compile(tree, "exported", "exec"), space)
    assert space["STATES"] == (evil, "plain") and space["ACTIONS"] == (name,)
    with pytest.raises(ValueError, match="unknown state 'nowhere'"):
        space["probabilities"](1, "nowhere")  # type: ignore[operator]
    with pytest.raises(ValueError, match="step is 9"):
        space["probabilities"](9, "plain")  # type: ignore[operator]


@pytest.mark.parametrize("verb", [["check"], ["solve"], ["tradeoff"], ["solve", "--json"], ["check", "--json"]])
def test_the_command_line_prints_nothing_that_a_terminal_obeys(verb, tmp_path):
    for i, name in enumerate(x for x in HOSTILE if "\ud800" not in x):
        path = ck.write_model(model(name, action=name), tmp_path / f"model{i}.npz")
        verb_name, *options = verb
        constraint = [f"cost {name}"] if verb_name == "tradeoff" else []
        result = CliRunner().invoke(app, [verb_name, str(path), *constraint, *options])
        assert result.exit_code == 0, result.output
        assert harmless(result.output)
        if not options:
            assert all(len(line) <= 200 for line in result.output.splitlines())


def test_json_is_escaped_and_still_means_the_same():
    names = dict.fromkeys(HOSTILE, 1.0) | {"é": 2.0, "\U000e0001 tag": 3.0}
    assert harmless(json_text(names)) and json.loads(json_text(names)) == names
    assert "é" in json_text(names)
