"""The documentation holds: links lead somewhere, public names are explained, commands on the pages are run."""

import importlib
import importlib.util
import inspect
import json
import pkgutil
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import cmdpkit
from rooms import ORDER

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *(page for page in DOCS.rglob("*.md") if "_build" not in page.parts)])
NOTEBOOKS = sorted((DOCS / "notebooks").glob("plot_*.py"))
MODULES = [name for name in cmdpkit.__all__ if inspect.ismodule(getattr(cmdpkit, name))]
PUBLIC = [name for name in cmdpkit.__all__ if not name.startswith("_") and name not in MODULES]


def extension(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / "_ext" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def prose(page):
    """The text without its code, where brackets mean other things."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text)


def statements(page):
    """The headings of a page's numbered statements."""
    return re.findall(r"^:::\{statement\} (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)


def anchors(page):
    """The anchors of a page: its headings, as GitHub and MyST make them, its statements, and `(name)=`."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    targets = set(re.findall(r"^\(([\w-]+)\)=$", text, flags=re.MULTILINE))
    return made | targets | {extension("statements").anchor(heading) for heading in statements(page)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file_and_a_heading(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.is_file(), f"{target} does not exist"
        assert not anchor or anchor in anchors(file), f"{target}: no such heading"


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_a_docstring_of_its_own_an_example_and_a_place_in_the_reference(name):
    named = getattr(cmdpkit, name)
    assert inspect.getdoc(named)
    assert not (named.__doc__ or "").startswith(f"{name}("), "a dataclass's signature is no docstring"
    reference = "".join(page.read_text(encoding="utf-8") for page in sorted((DOCS / "reference").glob("*.md")))
    assert re.search(rf"^\.\. auto\w+:: cmdpkit\.{name}$", reference, flags=re.MULTILINE)
    examples = "".join(re.findall(r"^```pycon\n(.*?)^```", reference, flags=re.MULTILINE | re.DOTALL))
    assert ">>>" in inspect.getdoc(named) or re.search(rf"\b{name}\b", examples)


@pytest.mark.parametrize("name", MODULES)
def test_every_public_module_works_without_further_imports_and_has_entries_in_the_reference(name):
    code = f"import cmdpkit; assert cmdpkit.{name}.__doc__"
    subprocess.run([sys.executable, "-c", code], check=True)
    reference = "".join(page.read_text(encoding="utf-8") for page in sorted((DOCS / "reference").glob("*.md")))
    assert re.search(rf"^\.\. auto\w+:: cmdpkit\.{name}\.\w+$", reference, flags=re.MULTILINE)


@pytest.mark.parametrize("page", [*PAGES, *NOTEBOOKS], ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_import_public_names_only(page):
    imported = re.findall(
        r"^(?:>>> )?(?:from|import) cmdpkit\.([\w.]+)", page.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert set(imported) <= set(MODULES)


def test_contributing_explains_the_rooms_in_the_order_they_build_on_each_other():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.partition("| room in `src/cmdpkit/` |")[2].partition("\n\n")[0]
    listed = re.findall(r"^\| `(\w+)/` \| .+ \|$", table, flags=re.MULTILINE)
    assert listed == [room for room in ORDER if (Path(cmdpkit.__file__).parent / room).is_dir()]


def test_contributing_walks_through_functions_that_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    walk = text.partition("## What a command passes through")[2].partition("\n## ")[0]
    named = re.findall(rf"`((?:{'|'.join(ORDER)})(?:\.\w+)+)`", walk)
    assert len(named) > 40
    for name in named:
        assert pkgutil.resolve_name(f"cmdpkit.{name}")


@pytest.mark.long
def test_the_commands_of_the_readme_print_what_it_shows(tmp_path):
    blocks = re.findall(r"^```console\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    commands = [part for block in blocks for part in re.split(r"^\$ ", block, flags=re.M) if part.startswith("cmdpkit")]
    assert len(commands) >= 6
    for part in commands:
        command, _, shown = part.partition("\n")
        output = extension("run").transcript(shlex.join(shlex.split(command, comments=True)), tmp_path).splitlines()
        for line in shown.splitlines():
            assert line == "..." or line in output, f"{command} does not print {line!r}"


@pytest.mark.parametrize(
    ("command", "expected", "message"),
    [
        ("cmdpkit solve no/such", 0, r"(?s)ended with exit code 1, expected 0.*no/such"),
        ("cmdpkit solve no/such", 3, r"(?s)ended with exit code 1, expected 3.*no/such"),
        ("cmdpkit --version", 3, r"ended with exit code 0, expected 3"),
    ],
)
def test_a_run_command_with_another_exit_code_is_an_error_with_its_output(tmp_path, command, expected, message):
    with pytest.raises(ValueError, match=message) as error:
        extension("run").transcript(command, tmp_path, expected)
    assert "Traceback" not in str(error.value)


def test_a_run_command_is_run_without_a_shell_and_only_if_it_is_ours(tmp_path):
    run = extension("run")
    with pytest.raises(ValueError, match="does not start with 'cmdpkit'"):
        run.transcript("touch made", tmp_path)
    with pytest.raises(ValueError, match="exit code 2"):
        run.transcript("cmdpkit --version; touch made", tmp_path)
    assert not (tmp_path / "made").exists()


def build(folder, page):
    """A documentation of one page, built without -W: even then a failing command must stop it."""
    (folder / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(DOCS / '_ext')!r})\nextensions = ['myst_parser', 'run']\n"
    )
    (folder / "index.md").write_text(page)
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "text", str(folder), str(folder / "out")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_page_shows_its_commands_with_their_output_and_expected_failures(tmp_path):
    page = "# T\n\n```{run}\ncmdpkit --version\n```\n\n```{run}\n:exit: 3\ncmdpkit solve paper/synthetic:rho=9\n```\n"
    done = build(tmp_path, page)
    assert done.returncode == 0, done.stderr
    shown = (tmp_path / "out" / "index.txt").read_text(encoding="utf-8")
    assert re.search(rf"\$ cmdpkit --version\n +cmdpkit {re.escape(cmdpkit.__version__)}\n", shown)
    assert re.search(r"\$ cmdpkit solve paper/synthetic:rho=9\n +error: infeasible", shown)


def test_a_command_with_another_exit_code_stops_the_build_and_names_the_page(tmp_path):
    done = build(tmp_path, "# T\n\n```{run}\n:exit: 3\ncmdpkit solve no/such\n```\n")
    assert done.returncode != 0
    assert "index.md:3" in done.stderr and "cmdpkit solve no/such" in done.stderr


def test_commands_that_an_installed_package_lacks_are_said_to_need_a_clone():
    """`bench` is a folder of the repository and is not installed."""
    for path in [*Path("docs").rglob("*.md"), Path("README.md")]:
        text = path.read_text(encoding="utf-8")
        for found in re.finditer(r"`python -m bench[^`]*`", text):
            around = " ".join(text[max(found.start() - 14, 0) : found.end() + 14].split())
            assert "in a clone" in around.lower(), (path, around)


# What other people may have linked to. A statement keeps its number and its page for good; new ones go to the end.
ANCHORS = {
    "exact.md": ["lemma-o", "lemma-l", "lemma-x", "lemma-m"],
    "pri.md": [f"statement-{k}" for k in range(1, 6)],
    "cl-pri.md": ["statement-6", "lemma-g", "statement-7", "statement-8", "statement-9", "statement-10"],
    "guarantees.md": ["lemma-a", "event-e", "statement-11", "lemma-b", "lemma-c", "statement-12"],
    "on-paper.md": ["statement-13", "statement-14", "statement-15"],
    "stationary.md": ["lemma-u", "lemma-s", "lemma-r"],
}


@pytest.mark.parametrize("page", ANCHORS)
def test_statements_keep_their_anchors(page):
    anchor = extension("statements").anchor
    found = [anchor(heading) for heading in statements(DOCS / "theory" / page)]
    assert found[: len(ANCHORS[page])] == ANCHORS[page]


def test_no_two_statements_have_the_same_name():
    named = [extension("statements").anchor(heading) for page in PAGES for heading in statements(page)]
    assert len(named) == len(set(named)) >= 27


def test_every_paper_that_an_algorithm_names_is_in_the_bibliography():
    bibliography = (DOCS / "bibliography.md").read_text(encoding="utf-8")
    for name in cmdpkit.learners.names():
        numbers = re.findall(r"\d{4}\.\d{5}|10\.\d{4}/\S+", cmdpkit.learners.facts(name).paper)
        for number in numbers:
            assert number in bibliography, f"{name} names {number}"


@pytest.mark.parametrize(
    ("latex", "mathml"),
    [
        (r"v^*", "<mrow><msup><mi>v</mi><mo>*</mo></msup></mrow>"),
        (
            r"k \ln m",
            '<mrow><mi>k</mi><mspace width="0.167em" /><mi>ln</mi><mspace width="0.167em" /><mi>m</mi></mrow>',
        ),
        (r"\frac{1}{K}", "<mrow><mfrac><mrow><mn>1</mn></mrow><mrow><mi>K</mi></mrow></mfrac></mrow>"),
        (r"a/b", '<mrow><mi>a</mi><mo lspace="0" rspace="0">/</mo><mi>b</mi></mrow>'),
    ],
)
def test_formulas_become_mathml(latex, mathml):
    made = extension("mathml").mathml(latex)
    assert re.sub(r"^<math [^>]*>|</math>$", "", made) == mathml


def test_indices_of_a_maximum_stand_below_it_where_there_is_room():
    mathml = extension("mathml").mathml
    assert "<munder><mi>max</mi>" in mathml(r"\max_a Q", "block")
    assert "<msub><mi>max</mi>" in mathml(r"\max_a Q", "inline")


@pytest.mark.parametrize("latex", [r"\foo x", r"a & b", r"\text{if $x$}"])
def test_a_formula_that_cannot_be_typeset_is_an_error(latex):
    module = extension("mathml")
    with pytest.raises(module.UnknownLatex, match="cannot be typeset"):
        module.mathml(latex)


def test_formulas_in_tables_of_commands_are_typeset():
    module = extension("mathml")
    parts = module.PLAIN.split("weak, (H^3 / slack) S sqrt(H^4 (1 + N)^2 K) K^0.8 + H sqrt K")
    expected = ["H^{3}", r"S \sqrt{H^{4} (1 + N)^{2} K} K^{0.8}", r"H \sqrt{K}"]
    assert [module.latex_of(part) for part in parts[1::2]] == expected


def finished(folder, body):
    (folder / "index.html").write_text(f'<a id="top" href="other.html#here">x</a>{body}', encoding="utf-8")
    (folder / "other.html").write_text('<p id="here">x</p>', encoding="utf-8")
    return extension("checked").faults(folder)


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('<a href="#top">x</a> <a href="https://x.org/a#b">x</a> <code>$ lam</code> <math>K^2</math>', None),
        ('<a href="none.html">x</a>', "index.html: 'none.html' leads to no file"),
        ('<a href="other.html#top">x</a>', "index.html: 'other.html#top' leads to no anchor"),
        ('<img src="none.png">', "index.html: 'none.png' leads to no file"),
        ("<p>prices |lam*|_1 ≤ q0</p>", "index.html: '|lam' is shown as plain text in 'x prices |lam*|_1 ≤ q0'"),
        ("<p>of order $K$</p>", "index.html: '$' is shown as plain text in 'x of order $K$'"),
        ("<p>like sqrt(K)</p>", "index.html: 'sqrt' is shown as plain text in 'x like sqrt(K)'"),
    ],
)
def test_finished_pages_have_working_links_and_typeset_formulas(tmp_path, body, fault):
    found = finished(tmp_path, body)
    assert found[:1] == ([fault] if fault else [])


@pytest.mark.parametrize("name", ["inventory", "gym/frozen-lake", "machine"], ids=["steps", "board", "no horizon"])
def test_a_thumbnail_shows_the_optimum(name):
    picture = extension("gallery").thumbnail(name, "")
    cmdp = cmdpkit.load(name)
    cells = (
        cmdp.grid.rows * cmdp.grid.columns if cmdp.grid else cmdp.S * (cmdp.H if cmdp.criterion.kind == "finite" else 1)
    )
    assert picture.count("<rect") == cells
    assert picture.count('class="draws"') == len({d.state for d in cmdpkit.solve(cmdp).stochastic_decisions()}) == 1


def test_a_figure_is_drawn_from_its_code_and_as_many_examples_of_the_page_as_it_needs():
    value_of = extension("drawn").value_of
    page = ">>> x = [1]\n>>> x.append(2)\n>>> y = sum(x)\n>>> [][0]\nTraceback (most recent call last):\nIndexError\n"
    assert value_of("z = y + 1\nz", page) == 4
    assert value_of("3 + 4", page) == 7
    with pytest.raises(NameError, match="nowhere"):
        value_of("nowhere", page)
    with pytest.raises(ValueError, match="expected an expression"):
        value_of("a = 1", page)


def test_tables_are_offered_as_csv_with_all_their_cells():
    rows = extension("folded").rows_of(
        "### `one`\n\nnote | x\n\n| a | b |\n| :- | -: |\n| 1 | 2,0 |\n\n### two\n\n| a | b |\n| - | - |\n| 3 | |\n"
    )
    assert rows == [["table", "a", "b"], ["one", "1", "2,0"], ["two", "3", ""]]
    for file in (DOCS / "algorithms" / "measured").glob("*.inc"):
        header, *rows = extension("folded").rows_of(file.read_text(encoding="utf-8"))
        assert rows and {len(row) for row in rows} == {len(header)}, file


@pytest.mark.parametrize("page", sorted((DOCS / "algorithms").glob("*.md")), ids=lambda page: page.stem)
def test_every_page_of_an_algorithm_begins_with_the_same_six_answers(page):
    if page.stem in {"index", "which", "table1", "not-here", "reproduction"}:
        return
    rows = re.findall(r"^\| \*\*(.+?)\*\* \| .+ \|$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert rows[:6] == ["What for", "When not", "Guarantee", "Needs", "Use", "Limits"]


def test_notebooks_are_numbered_and_have_a_title():
    assert [int(notebook.stem.split("_")[1]) for notebook in NOTEBOOKS] == [1, 2, 3, 4, 5, 6]
    for notebook in NOTEBOOKS:
        title, line = notebook.read_text(encoding="utf-8").splitlines()[1:3]
        assert line == "=" * len(title)


def test_the_page_of_algorithms_and_the_readme_say_what_was_measured():
    runs = json.loads((DOCS / "figures" / "front.json").read_text(encoding="utf-8"))["runs"]
    labels = {
        "pri": "PRI, as published | model-free",
        "triple-q": "Triple-Q, authors' constants | model-free",
        "mf-pri": "MF-PRI, this package | model-free",
        "ps-cmdp": "PS-CMDP, posterior sampling | model-based",
        "cl-pri": "CL-PRI, this package | model-based",
    }
    rows = []
    for name, label in labels.items():
        run = runs[name]
        sums = [run[f"final {what}"] for what in ("regret", "violation")]
        cells = [f"{sum(x) / 5:,.0f} ({min(x):,.0f} … {max(x):,.0f})" for x in sums]
        kept = sum(utility >= 2 for utility in run["policy utility"])
        row = f"| {label} | {' | '.join(cells)} | {max(run['policy lacks']):.4f} | {kept} of 5 |"
        rows.append(row.replace("-0", "−0").replace(" -", " −").replace("(-", "(−"))
    for page in (DOCS / "algorithms" / "index.md", ROOT / "README.md"):
        text = page.read_text(encoding="utf-8")
        assert all(row in text for row in rows), (page, rows)
