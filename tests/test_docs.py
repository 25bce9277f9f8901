"""The documentation holds: links lead somewhere, public names are explained, commands on the pages are run."""

import importlib
import importlib.util
import inspect
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import cmdpkit
from cmdpkit import envs
from test_layers import ORDER

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *(page for page in DOCS.rglob("*.md") if "_build" not in page.parts)])
PUBLIC = [name for name in cmdpkit.__all__ if not name.startswith("_") and name not in cmdpkit._MODULES]


def extension(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / "_ext" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def prose(page):
    """The text without its code, where brackets mean other things."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(page):
    """The anchors of a page's headings, as GitHub and MyST make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


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
def test_every_public_name_has_a_docstring_of_its_own_and_a_place_in_the_reference(name):
    named = getattr(cmdpkit, name)
    assert inspect.getdoc(named)
    assert not (named.__doc__ or "").startswith(f"{name}("), "a dataclass's signature is no docstring"
    reference = (DOCS / "reference.md").read_text(encoding="utf-8")
    assert re.search(rf"^\.\. auto\w+:: cmdpkit\.{name}$", reference, flags=re.MULTILINE)


@pytest.mark.parametrize("name", cmdpkit._MODULES)
def test_every_public_module_works_without_further_imports_and_has_entries_in_the_reference(name):
    code = f"import cmdpkit; assert cmdpkit.{name}.__doc__"
    subprocess.run([sys.executable, "-c", code], check=True)
    reference = (DOCS / "reference.md").read_text(encoding="utf-8")
    assert re.search(rf"^\.\. auto\w+:: cmdpkit\.{name}\.\w+$", reference, flags=re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_import_public_names_only(page):
    imported = re.findall(
        r"^(?:>>> )?(?:from|import) cmdpkit\.([\w.]+)", page.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert set(imported) <= set(cmdpkit._MODULES)


@pytest.mark.parametrize("name", envs.names())
def test_every_environment_has_a_page_that_solves_it(name):
    page = (DOCS / "environments" / f"{name.replace('/', '-')}.md").read_text(encoding="utf-8")
    assert re.search(rf"^```{{run}}\ncmdpkit solve {name}\b", page, flags=re.MULTILINE)


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
        room, module, *rest = name.split(".")
        found = importlib.import_module(f"cmdpkit.{room}.{module}")
        for part in rest:
            found = getattr(found, part)


def test_the_commands_of_the_readme_print_what_it_shows(tmp_path):
    blocks = re.findall(r"^```console\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    commands = [part for block in blocks for part in re.split(r"^\$ ", block, flags=re.M) if part.startswith("cmdpkit")]
    assert len(commands) >= 6
    for part in commands:
        command, _, shown = part.partition("\n")
        output = extension("run").transcript(shlex.join(shlex.split(command, comments=True)), tmp_path).splitlines()
        for line in shown.splitlines():
            assert line == "..." or line in output, f"{command} does not print {line!r}"


def test_a_run_command_that_fails_is_an_error_with_its_output(tmp_path):
    with pytest.raises(ValueError, match=r"(?s)ended with exit code 1, expected 0.*no/such") as error:
        extension("run").transcript("cmdpkit solve no/such", tmp_path)
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


@pytest.mark.parametrize("options", ["", ":exit: 3\n"], ids=["no exit code", "another exit code"])
def test_a_failing_command_stops_the_build_and_names_the_page(tmp_path, options):
    done = build(tmp_path, f"# T\n\n```{{run}}\n{options}cmdpkit solve no/such\n```\n")
    assert done.returncode != 0
    assert "index.md:3" in done.stderr and "cmdpkit solve no/such" in done.stderr


def test_a_command_that_succeeds_although_it_should_fail_stops_the_build(tmp_path):
    done = build(tmp_path, "# T\n\n```{run}\n:exit: 3\ncmdpkit --version\n```\n")
    assert done.returncode != 0 and "ended with exit code 0, expected 3" in done.stderr


def test_commands_that_an_installed_package_lacks_are_said_to_need_a_clone():
    """`bench` is a folder of the repository and is not installed."""
    for path in [*Path("docs").rglob("*.md"), Path("README.md")]:
        text = path.read_text(encoding="utf-8")
        for found in re.finditer(r"`python -m bench[^`]*`", text):
            around = " ".join(text[max(found.start() - 14, 0) : found.end() + 14].split())
            assert "in a clone" in around.lower(), (path, around)
