"""One description of a table, five forms: each is read back by other means, and all have the numbers of the records."""

import io
import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest
from markdown_it import MarkdownIt
from rich.console import Console
from scipy import stats
from typer.testing import CliRunner

import cmdpkit as ck
from cmdpkit import cli
from cmdpkit.exact.diagnosis import separations
from cmdpkit.results.diagnosis import range_table, separation_table
from cmdpkit.results.groups import groups
from cmdpkit.results.runs import learned, learned_data, run_table
from cmdpkit.results.solution import constraint_table
from cmdpkit.results.study import BRIEF, Study
from cmdpkit.results.tables import Column, Table, TerminalTable, in_line, joined, whole
from records import make_record, study, two_bounds

HOSTILE = ["a & b", "50 %", "x_y^z", r"\input{/etc/passwd}", "{$#~}", "<b>|</b>", '[2] "q" `c` *s*', "\x1b[31m\nnext"]


# -- readers that know nothing of how the tables are written -----------------------------------------------------------


def from_markdown(text):
    """Titles and rows of cells, by another program's reading of Markdown."""
    rows, titles, row = [], [], None
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "tr_open":
            row = []
        elif token.type == "tr_close":
            rows.append(row)
            row = None
        elif token.type == "inline":
            said = "".join(child.content for child in token.children)
            (titles if row is None else row).append(said)
    return titles, rows


UNDONE = {
    **{rf"\{x}": x for x in "&%$#_{}"},
    r"\textbackslash{}": "\\", r"\textasciitilde{}": "~", r"\textasciicircum{}": "^", r"\textless{}": "<",
    r"\textgreater{}": ">", r"\textbar{}": "|", r"\char34{}": '"', "{[}": "[", "{]}": "]", r"\ldots{}": "…",
    r"$\pm$": "±", r"$\le$": "≤", r"$\ge$": "≥", r"$\infty$": "∞", "$-$": "-", "--": "–",
}  # fmt: skip


def from_latex(text):
    """Rows of cells, token by token: a character that LaTeX would act upon is an error wherever it is not a command."""
    inside = re.search(r"\\toprule\n(.*)\\bottomrule", text, re.DOTALL)[1].replace("\\midrule\n", "")
    tokens = re.compile("|".join(map(re.escape, sorted(UNDONE, key=len, reverse=True))) + r"|\\\\\n| & |[^\\{}$%#_~^&]")
    rows, cells, at = [], [""], 0
    while at < len(inside):
        found = tokens.match(inside, at)
        assert found, f"LaTeX would act upon {inside[at : at + 20]!r}"
        at = found.end()
        if found[0] == "\\\\\n":
            rows.append([cell.strip() for cell in cells])
            cells = [""]
        elif found[0] == " & ":
            cells.append("")
        else:
            cells[-1] += UNDONE.get(found[0], found[0])
    assert cells == [""]
    return rows


class Headings(HTMLParser):
    """Headings of the first table with the class "verdict" of a page, and the numbers behind its cells."""

    def __init__(self):
        super().__init__()
        self.inside = self.heading = False
        self.headings, self.values = [], []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.inside = self.inside or (tag == "table" and "verdict" in attrs.get("class", "") and not self.headings)
        if self.inside and tag == "th" and attrs.get("scope") == "col":
            self.headings.append("")
            self.heading = True
        if self.inside and "data-value" in attrs:
            self.values.append(attrs["data-value"])

    def handle_endtag(self, tag):
        self.inside = self.inside and tag != "table"
        self.heading = self.heading and tag != "th"

    def handle_data(self, text):
        if self.heading:
            self.headings[-1] += text.strip()


def printed(renderable, width=100):
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(renderable)
    return out.getvalue()


def read(text):
    """The mean of a cell: "1,924 ± 450" is 1924, "12.3k ± 2,200" is 12300."""
    number = text.split(" ± ")[0].replace(",", "")
    factor = {"k": 1e3, "M": 1e6}.get(number[-1:], 1.0)
    return float(number.rstrip("kM")) * factor


# -- the forms ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two():
    return Study(tuple(study("two", 3, two_bounds())), {"two": two_bounds()})


def test_every_form_has_the_same_columns_and_the_numbers_of_the_records(two):
    """Regret and the violations of both bounds, of every algorithm, as plain means over the records."""
    expected = {}
    for name in ("pri", "triple-q", "opt-cmdp"):
        mine = [r for r in two.records if r.run.algo == name]
        ends = [np.mean([r.final("regret") for r in mine])]
        ends += [np.mean([r.final("violation")[n] for r in mine]) for n in (0, 1)]
        expected[name] = ends
    (titles, rows), latex = from_markdown(two.to_markdown()), from_latex(two.to_latex())
    assert titles == ["two"] and rows == latex
    page = Headings()
    page.feed(render_page(two))
    assert page.headings == rows[0]
    where = [rows[0].index(x) for x in ("regret", "violation of late <i>jobs</i>", "violation of rest")]
    width = len(rows[0])
    for i, row in enumerate(rows[1:]):
        ends = expected[row[0]]
        assert [read(row[j]) for j in where] == pytest.approx(ends, rel=5e-4)
        assert [float(page.values[i * width + j]) for j in where] == ends
        data = two.table()[i]
        assert [data["regret"], data["violation_1"], data["violation_2"]] == ends
    terminal = printed(TerminalTable(two.summary()[0].only(*BRIEF)))
    for name, ends in expected.items():
        lines = terminal.splitlines()
        first = next(i for i, line in enumerate(lines) if line.startswith(name))
        cells = [*re.split(r"\s{2,}", lines[first])[1:3], lines[first + 1].strip()]
        assert [read(cell) for cell in cells] == pytest.approx(ends, rel=6e-3)


def render_page(shown):
    from cmdpkit.results.report import render

    return render(shown)


def test_intervals_are_half_the_width_of_students(two):
    column = from_markdown(two.to_markdown())[1]
    j = column[0].index("strong regret")
    for group, row in zip(groups(two.records), column[1:], strict=True):
        ends = [r.final("strong_regret") for r in group.records]
        half = stats.t.ppf(0.975, len(ends) - 1) * stats.sem(ends)
        assert float(row[j].split(" ± ")[1].replace(",", "")) == pytest.approx(half, rel=0.05)  # two digits


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_shown_as_it_is_in_markdown_and_latex(name):
    column = Column("name", "a_b & c", "The name.", lambda row: row)
    table = Table(name, (column, Column("n", "n", "Its length.", len, whole, "right")), (name,))
    safe = name if name.isprintable() else repr(name)[1:-1]
    expected = [["a_b & c", "n"], [safe, str(len(name))]]
    assert from_markdown(table.to_markdown()) == ([safe], expected)
    assert from_latex(table.to_latex()) == expected
    assert table.to_latex().splitlines()[0] == f"% {safe}; needs \\usepackage{{booktabs}}"
    assert table.to_latex().splitlines()[1] == r"\begin{tabular}{lr}"


def test_the_markdown_of_a_hostile_name_makes_no_html():
    table = Table("t", (Column("name", "name", "", lambda row: row),), tuple(HOSTILE))
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(table.to_markdown())
    inside = re.sub(r"</?(table|thead|tbody|tr|th|td|p|strong)>", "", html)
    assert "<" not in inside


def test_totals_stand_last_behind_a_rule_and_are_no_data():
    columns = (Column("x", "x", "", lambda row: row, in_line, "right"),)
    table = Table("t", columns, (1.5, 2.25), totals=(3.75,))
    assert table.data() == [{"x": 1.5}, {"x": 2.25}]
    assert from_markdown(table.to_markdown())[1] == [["x"], ["1.50"], ["2.25"], ["3.75"]]
    assert re.findall(r"\\\w+rule", table.to_latex()) == [r"\toprule", r"\midrule", r"\midrule", r"\bottomrule"]
    assert printed(TerminalTable(table)).split() == ["x", "────", "1.50", "2.25", "3.75"]


def test_columns_without_values_are_left_out_for_people_and_null_for_programs():
    columns = (
        Column("a", "a", "", lambda row: row),
        Column("b", "b", "", lambda row: None),
        Column("c", "c", "", lambda row: None if row == "x" else 1, whole),
    )
    table = Table("t", columns, ("x", "y"))
    assert table.data() == [{"a": "x", "b": None, "c": None}, {"a": "y", "b": None, "c": 1}]
    assert from_markdown(table.to_markdown())[1] == [["a", "c"], ["x", "–"], ["y", "1"]]


def test_another_form_is_refused(two):
    with pytest.raises(ValueError, match="the form of a table is 'html', expected 'markdown' or 'latex'"):
        joined(two.summary(), "html")


# -- the terminal ------------------------------------------------------------------------------------------------------


def test_headings_are_folded_only_where_a_table_is_too_wide(two):
    table = two.summary()[0].only(*BRIEF)
    narrow, wide = printed(TerminalTable(table), 100).splitlines(), printed(TerminalTable(table), 140).splitlines()
    assert "policy below optimum" in wide[0] and max(map(len, narrow)) <= 100
    assert "policy below optimum" not in narrow[0] and "optimum" in " ".join(narrow[:3])
    assert "…" not in "\n".join(narrow)  # nothing is cut off


# -- single tables -----------------------------------------------------------------------------------------------------


def test_a_column_says_what_it_means_in_a_sentence(two):
    cmdp = ck.load("paper/synthetic")
    found = ck.solve(cmdp)
    tables = [*two.summary(), run_table(two.records[:2], 9), constraint_table(found)]
    tables += [range_table(ck.diagnose(cmdp).ranges), separation_table(separations(found))]
    for table in tables:
        keys = [column.key for column in table.columns]
        assert len(set(keys)) == len(keys)
        for column in table.columns:
            assert re.fullmatch(r"[A-Z].* .*\.", column.meaning), column.key


def test_the_table_of_runs_shows_what_json_has(two):
    mine = [r for r in two.records if r.run.algo == "pri"]
    table = run_table(mine, most=3)
    for shown, record in zip(table.data(), mine, strict=True):
        entry = record.to_dict()
        assert shown["violation_2"] == entry["violation"][1] and shown["regret"] == entry["regret"]
    rows = from_markdown(table.to_markdown())[1]
    assert [row[0] for row in rows] == ["seed", "0", "1", "2", "mean"]
    j = rows[0].index("realised violation of rest")
    mean = np.mean([r.final("realised_violation")[1] for r in mine])
    assert read(rows[-1][j]) == pytest.approx(mean, rel=5e-4)
    assert [row[0] for row in from_markdown(run_table(mine, most=2).to_markdown())[1]] == ["seed", "mean"]


def test_runs_that_a_rule_has_ended_at_different_lengths_show_their_own(two):
    mine = [r for r in two.records if r.run.algo == "pri"]
    ended = [replace(r, run=replace(r.run, length=100 + r.run.seed, anytime=True)) for r in mine]
    assert [row["episodes"] for row in run_table(ended, most=3).data()] == [100, 101, 102]
    assert learned_data(ended)["episodes"] is None and learned_data(mine)["episodes"] == mine[0].run.episodes
    assert "100 to 102 episodes" in str(learned(ended).renderables[0])


def test_runs_without_any_constraint_have_a_table_too():
    free = ck.CMDP([[[1.0], [1.0]]], [[1.0, 0.0]], horizon=2)
    records = [make_record("free", "opt-cmdp", seed, free) for seed in (0, 1)]
    assert "violation" not in run_table(records, 9).to_markdown()
    (row,) = Study(tuple(records)).table()
    assert row["policies_within_bounds"] is None and not any("violation" in key for key in row)


# -- the command line --------------------------------------------------------------------------------------------------


def run(*arguments):
    return CliRunner().invoke(cli.app, list(arguments), prog_name="cmdpkit")


@pytest.mark.parametrize("order", [["--json", "--table", "latex"], ["--table", "latex", "--json"]])
def test_json_and_tables_exclude_each_other(order, tmp_path):
    refused = run("show", str(tmp_path), *order)
    assert refused.exit_code == 2 and "--json and --table cannot be combined" in refused.stderr


# -- the width of a terminal -------------------------------------------------------------------------------------------


def wide_table(n: int, names=("long name of a row", "b")) -> Table:
    """Columns of which each has its own number in every row, and one with two parts."""
    columns = [Column("name", "name", "", lambda row: row)]
    columns += [
        Column(f"c{i}", f"heading number {i}", "", lambda row, i=i: 1000 * i + len(row), whole, "right")
        for i in range(n)
    ]
    return Table("wide", tuple(columns), tuple(names))


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140, 400])
def test_a_printed_table_fits_its_terminal_and_loses_nothing(width, two):
    table = wide_table(12)
    lines = printed(TerminalTable(table), width).splitlines()
    assert max(len(line.rstrip()) for line in lines) <= width
    for row in table.rows:
        mine = [line for line in lines if line.startswith(row)]
        cells = [cell for line in mine for cell in line.removeprefix(row).split()]
        assert cells == [f"{1000 * i + len(row):,}" for i in range(12)]
    assert (len([line for line in lines if line.startswith("b ")]) == 1) == (width >= 140)
    text = printed(TerminalTable(two.summary()[0].only(*BRIEF)), width)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width and "…" not in text
    ends = [cell.text for n in (0, 1) for cell in two.summary()[0].cells(strong_violation(two).split()[n], narrow=True)]
    assert all(end in text for end in ends)
    assert " ".join(text.split()).endswith(", then rest.") and "Each cell lists" in text


def strong_violation(shown):
    return next(column for column in shown.summary()[0].columns if column.key == "strong_violation")


def test_python_prints_in_the_width_of_the_terminal(two, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert max(map(len, str(two).splitlines())) > 60  # standard output is no terminal here
    for width in (50, 60):
        monkeypatch.setenv("COLUMNS", str(width))
        assert max(map(len, str(two).splitlines())) <= width
    monkeypatch.delenv("COLUMNS")
    monkeypatch.setattr("sys.stdout", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("shutil.get_terminal_size", lambda fallback: os.terminal_size((60, 24)))
    assert max(map(len, str(two).splitlines())) <= 60
