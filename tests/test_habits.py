"""How the project is kept: its own papers say what is so; `make hooks` and `make release-check` do what they should and refuse the rest."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from check_book import settings, toc_files
from conftest import ROOT
from release_check import is_date, sections, version_of

META = settings(ROOT)
MAKEFILE = (ROOT / "Makefile").read_text("utf8")
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.M))
PAGES = ["CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", ".github/pull_request_template.md", "nbs/stability.md"]
PAGES += [str(path.relative_to(ROOT)) for path in sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.md"))]


def read(name: str) -> str:
    return (ROOT / name).read_text("utf8")


# ---- CITATION.cff

REQUIRED = {"cff-version", "message", "title", "authors"}
KNOWN = REQUIRED | {"type", "abstract", "version", "date-released", "license", "keywords", "references", "url", "repository-code"}


def plain(title: str) -> str:
    return title.replace("{", "").replace("}", "")


def test_the_citation_is_valid_and_agrees_with_the_settings() -> None:
    citation = yaml.safe_load(read("CITATION.cff"))
    assert REQUIRED <= citation.keys() <= KNOWN
    assert (citation["cff-version"], citation["type"], citation["license"]) == ("1.2.0", "software", "Apache-2.0")
    assert citation["title"] == META["title"]
    assert citation["authors"] == [{"name": META["author"]}]
    assert citation["version"] == META["version"]
    assert citation["keywords"] == META["keywords"].split()
    assert citation["abstract"] == META["description"]
    assert citation.get("repository-code", "") == META["git_url"]
    assert "date-released" not in citation or is_date(str(citation["date-released"]))


def test_the_citation_names_both_papers_as_the_bibliography_does() -> None:
    from pybtex.database import parse_file

    entries = parse_file(str(ROOT / "nbs" / "references.bib")).entries
    references = yaml.safe_load(read("CITATION.cff"))["references"]
    assert len(references) == 2
    for key, reference in zip(("paper2604", "paper2605"), references, strict=True):
        entry = entries[key]
        assert {"type", "title", "authors"} <= reference.keys()
        assert reference["title"] == plain(entry.fields["title"])
        named = [(author["family-names"], author["given-names"]) for author in reference["authors"]]
        assert named == [(" ".join(person.last_names), " ".join(person.first_names)) for person in entry.persons["author"]]
        assert str(reference["year"]) == entry.fields["year"]
        assert reference["identifiers"] == [{"type": "other", "value": f"arXiv:{entry.fields['eprint']}"}]
        assert reference["url"].endswith(f"/abs/{entry.fields['eprint']}")


# ---- the changelog

KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_the_changelog_has_its_form() -> None:
    found = sections(read("CHANGELOG.md"))
    assert next(iter(found)) == "Unreleased"
    days = [day for version, (day, _) in found.items() if version != "Unreleased"]
    assert all(map(is_date, days)) and days == sorted(days, reverse=True)
    for text in (text for _, text in found.values()):
        assert set(re.findall(r"^### (.*)", text, re.M)) <= KINDS
        assert all(line.startswith(("- ", "  ", "### ")) for line in text.splitlines() if line)


def test_the_changelog_names_what_exists() -> None:
    import transformer_ols

    public = set(transformer_ols.__all__)
    unreleased = sections(read("CHANGELOG.md"))["Unreleased"][1]
    names = {name.removesuffix("()") for name in re.findall(r"`([A-Za-z_]+(?:\(\))?)`", unreleased)}
    assert names - public == {"softmax_factors"}
    assert hasattr(transformer_ols.Gaussian, "softmax_factors")


# ---- the pages


@pytest.mark.parametrize("page", PAGES)
def test_links_resolve_and_make_targets_exist(page: str) -> None:
    text = read(page)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        assert "://" not in target, f"{target}: no public address is known"
        assert (ROOT / page).parent.joinpath(target).exists(), target
    assert set(re.findall(r"`make ([a-z-]+)", text)) | set(re.findall(r"^make ([a-z-]+)", text, re.M)) <= TARGETS


@pytest.mark.parametrize("page", [*PAGES, "CITATION.cff", "README.md"])
def test_no_address_is_invented(page: str) -> None:
    known = {META["author_email"], META["git_url"], *re.findall(r"https://arxiv\.org/\S+|https://download\.pytorch\.org/\S+\w", read(page))}
    found = re.findall(r"https?://[^\s)`'\"]+|[\w.+-]+@[\w-]+\.[\w.]+", read(page))
    assert {url for url in found if "127.0.0.1" not in url} <= known


def test_the_checklist_points_to_checks_that_exist() -> None:
    lines = re.findall(r"^- \[ \] (.*)$", read("CONTRIBUTING.md"), re.M)
    assert len(lines) >= 10
    for line in lines:
        check = re.search(r"\(`([^`]+)`\)$", line)
        assert check, f"does not end with what enforces it: {line}"
        command, _, target = check[1].partition(" ")
        assert target in TARGETS if command == "make" else (ROOT / check[1]).is_file(), line


def test_contributing_names_the_templates_by_their_names() -> None:
    names = {yaml.safe_load(read(page).split("---")[1])["name"] for page in PAGES if "ISSUE_TEMPLATE" in page}
    assert {"Bug", "Wrong claim", "Chapter"} == names
    assert all(f"*{name}*" in read("CONTRIBUTING.md") for name in names)


@pytest.mark.parametrize("page", [page for page in PAGES if "ISSUE_TEMPLATE" in page])
def test_issue_templates_have_what_code_hosts_ask_for(page: str) -> None:
    _, front, body = read(page).split("---\n", 2)
    meta = yaml.safe_load(front)
    assert meta["name"] and meta["about"] and body.strip()
    assert body.count("```") % 2 == 0


# ---- stability


def test_the_policy_supports_what_the_metadata_ask_for() -> None:
    table = dict(re.findall(r"^\| (\w+) \| (\d[\d., ]*\d)(?: or newer)? \|$", read("nbs/stability.md"), re.M))
    minors = [int(version.split(".")[1]) for version in table.pop("Python").split(", ")]
    assert table == dict(requirement.split(">=") for requirement in META["requirements"].split())
    assert f"3.{minors[0]}" == META["min_python"] and minors == list(range(minors[0], minors[-1] + 1))
    assert f"range(oldest, {minors[-1] + 1})" in read("setup.py")
    (matrix,) = [job["strategy"]["matrix"]["python"] for job in workflow("test")["jobs"].values() if "strategy" in job]
    assert matrix == [f"3.{minor}" for minor in minors]


def public_modules() -> list[str]:
    return sorted(path.stem for path in (ROOT / "transformer_ols").glob("[!_]*.py"))


@pytest.mark.parametrize("module", public_modules())
def test_public_means_documented(module: str) -> None:
    loaded = importlib.import_module(f"transformer_ols.{module}")
    undocumented = [name for name in loaded.__all__ if callable(value := getattr(loaded, name)) and not (value.__doc__ or "").strip()]
    assert undocumented == []
    assert f"nbs/api/{module}" in toc_files(yaml.safe_load(read("_toc.yml")))
    assert f"automodule:: transformer_ols.{module}\n" in read(f"nbs/api/{module}.md")


# ---- security

UNSAFE_MODULES = {
    "pickle",
    "dill",
    "cloudpickle",
    "shelve",
    "marshal",
    "joblib",
    "subprocess",
    "socket",
    "urllib",
    "http",
    "requests",
    "ctypes",
}
UNSAFE_CALLS = {"eval", "exec", "torch.load", "torch.hub.load", "joblib.load", "os.system"}


def unsafe(source: str) -> list[str]:
    """Imports and calls that could run code from data, or reach out of the process."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in UNSAFE_MODULES]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").split(".")[0] in UNSAFE_MODULES:
            found.append(str(node.module))
        elif isinstance(node, ast.Call):
            if (name := ast.unparse(node.func)) in UNSAFE_CALLS:
                found.append(name)
            found += [key.arg for key in node.keywords if key.arg == "allow_pickle" and ast.unparse(key.value) != "False"]
    return found


@pytest.mark.parametrize("path", sorted((ROOT / "transformer_ols").glob("*.py")), ids=lambda path: path.stem)
def test_the_package_runs_no_code_from_data(path: Path) -> None:
    assert unsafe(path.read_text("utf8")) == []


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from pickle import load",
        "import urllib.request",
        "torch.load('a')",
        "eval('1')",
        "np.load('a', allow_pickle=True)",
    ],
)
def test_unsafe_lines_are_recognised(line: str) -> None:
    assert unsafe(line)


# ---- workflows and hooks


def workflow(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load(read(f".github/workflows/{name}.yml")))


def workflow_faults(document: dict[Any, Any], targets: set[str]) -> Iterator[str]:
    """What would not run, or could do more than it must."""
    if document.get("permissions") != {"contents": "read"}:
        yield "permissions are more than reading"
    for name, job in document["jobs"].items():
        if job["runs-on"] != "ubuntu-latest":
            yield f"{name}: runs on {job['runs-on']}"
        for step in job["steps"]:
            if "uses" in step and not re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"]):
                yield f"{name}: {step['uses']} is not an action of the host at a major version"
            for line in step.get("run", "").splitlines():
                command, *words = line.split()
                if command == "make":
                    yield from (f"{name}: no make target {word}" for word in words if "=" not in word and word not in targets)
                elif command == ".venv/bin/python":
                    if not (ROOT / words[0]).is_file():
                        yield f"{name}: no file {words[0]}"
                else:
                    yield f"{name}: {command} is neither make nor a tool of ours"


def workflows() -> list[str]:
    return sorted(path.stem for path in (ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("name", workflows())
def test_workflows_run_what_exists_and_may_do_little(name: str) -> None:
    assert list(workflow_faults(workflow(name), TARGETS)) == []


def test_only_publishing_may_write() -> None:
    allowed = {
        (name, job): spec["permissions"] for name in workflows() for job, spec in workflow(name)["jobs"].items() if "permissions" in spec
    }
    assert allowed == {("book", "publish"): {"pages": "write", "id-token": "write"}}


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("make test lint", "make test lnit", "test: no make target lnit"),
        ("actions/checkout@v4", "actions/checkout@main", "actions/checkout@main is not an action"),
        ("contents: read", "contents: write", "permissions are more than reading"),
        ("tools/check_book.py", "tools/check_bok.py", "no file tools/check_bok.py"),
        ("make book", "curl https://host/x | sh", "curl is neither make nor a tool of ours"),
    ],
)
def test_a_broken_workflow_is_caught(old: str, new: str, fault: str) -> None:
    text = read(".github/workflows/test.yml")
    assert old in text
    faults = list(workflow_faults(yaml.safe_load(text.replace(old, new)), TARGETS))
    assert any(fault in found for found in faults), faults


def test_pre_commit_needs_nothing_from_elsewhere() -> None:
    (repository,) = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"]
    assert repository["repo"] == "local"
    for hook in repository["hooks"]:
        assert hook["language"] == "system"
        command, quiet, target = hook["entry"].split()
        assert (command, quiet) == ("make", "-s") and target in TARGETS


def git(folder: Path, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    identity = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in (("NAME", "a"), ("EMAIL", "a@b"))}
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment = {**clean, **identity, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    return subprocess.run(["git", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=check)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with one small notebook and our attributes."""
    folder = tmp_path / "clone"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / ".gitattributes").write_text(read(".gitattributes"))
    write_cell(folder, "1 + 1")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    return folder


def write_cell(folder: Path, source: str) -> None:
    cell = {"cell_type": "code", "id": "a", "metadata": {}, "execution_count": None, "outputs": [], "source": [source]}
    (folder / "a.ipynb").write_text(json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n")


def install(clone: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "install_hooks.py"), "--venv", "some/env"]
    only_git = clone.parent / "bin"
    only_git.mkdir(exist_ok=True)
    if not (only_git / "git").exists():
        (only_git / "git").symlink_to(subprocess.run(["which", "git"], capture_output=True, text=True).stdout.strip())
    return subprocess.run(command, cwd=clone, env={"PATH": str(only_git), **environment}, capture_output=True, text=True)


def conflict(clone: Path) -> str:
    """Change the one cell on two branches and merge; the notebook that results."""
    git(clone, "checkout", "-qb", "other")
    write_cell(clone, "1 + 2")
    git(clone, "commit", "-qam", "theirs")
    git(clone, "checkout", "-q", "main")
    write_cell(clone, "1 + 3")
    git(clone, "commit", "-qam", "ours")
    git(clone, "merge", "-q", "other", check=False)
    return (clone / "a.ipynb").read_text()


def test_without_the_driver_a_conflict_breaks_the_notebook(clone: Path) -> None:
    with pytest.raises(json.JSONDecodeError):
        json.loads(conflict(clone))


def test_with_the_driver_a_conflicting_notebook_still_opens(clone: Path) -> None:
    assert install(clone).returncode == 0
    (clone / ".git" / "hooks" / "pre-commit").unlink()
    sources = ["".join(cell["source"]) for cell in json.loads(conflict(clone))["cells"]]
    assert "1 + 2" in sources and "1 + 3" in sources


def test_the_plain_hook_runs_make_and_stops_a_commit(clone: Path) -> None:
    done = install(clone)
    assert "before a commit: make style check" in done.stdout
    assert "some/env" in (clone / ".git" / "hooks" / "pre-commit").read_text()
    (clone / "Makefile").write_text("style:\n\t@echo badly written; exit 1\ncheck:\n")
    write_cell(clone, "2")
    refused = git(clone, "commit", "-qam", "second", check=False)
    assert refused.returncode != 0 and "badly written" in refused.stdout + refused.stderr
    (clone / "Makefile").write_text("style:\ncheck:\n")
    assert git(clone, "commit", "-qam", "second", check=False).returncode == 0
    assert {"style", "check"} <= TARGETS
    assert "before a commit: make style check" in install(clone).stdout, "our own hook may be written again"


def test_a_hook_of_somebody_else_is_left_alone(clone: Path) -> None:
    path = clone / ".git" / "hooks" / "pre-commit"
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\ntrue\n")
    assert "left your own" in install(clone).stdout
    assert path.read_text() == "#!/bin/sh\ntrue\n"


def test_hooks_outside_a_clone_say_so(tmp_path: Path) -> None:
    (tmp_path / "clone").mkdir()
    done = install(tmp_path / "clone")
    assert done.returncode == 1 and done.stdout.startswith("not a git clone")


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git clone")
def test_what_is_committed_obeys_the_attributes() -> None:
    lines = git(ROOT, "ls-files", "--eol").stdout.splitlines()
    assert len(lines) > 50
    assert [line for line in lines if line.startswith(("i/crlf", "i/mixed")) and "attr/-text" not in line] == []
    notebooks = git(ROOT, "check-attr", "merge", "nbs/index.ipynb", "nbs/01_prompts.ipynb").stdout.splitlines()
    assert all(line.endswith("merge: nbdev-merge") for line in notebooks) and len(notebooks) == 2


# ---- make release-check

Edit = Callable[[Path], object]


def replace(name: str, old: str, new: str) -> Edit:
    def edit(root: Path) -> None:
        text = (root / name).read_text()
        assert old in text
        (root / name).write_text(text.replace(old, new))

    return edit


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    """A small repository that may be released."""
    root = tmp_path / "ready"
    root.mkdir()
    (root / "settings.ini").write_text("[DEFAULT]\nversion = 1.2.0\n")
    (root / "CHANGELOG.md").write_text(
        "# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2026-03-01\n\n- Something.\n\n## [1.1.0] - 2026-01-01\n\n- Else.\n"
    )
    (root / "CITATION.cff").write_text("cff-version: 1.2.0\nversion: 1.2.0\ndate-released: 2026-03-01\n")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "release")
    return root


def release_check(root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "release_check.py"), "--source", str(root), *options]
    return subprocess.run(command, capture_output=True, text=True)


def test_what_is_ready_passes(ready: Path) -> None:
    for options in ([], ["--only-metadata"]):
        done = release_check(ready, *options)
        assert (done.returncode, done.stdout, done.stderr) == (0, "1.2.0: metadata ready\n", "")


METADATA: dict[str, tuple[Edit, str]] = {
    "no section": (replace("settings.ini", "1.2.0", "1.3.0"), "CHANGELOG.md: no section '## [1.3.0] - YYYY-MM-DD'"),
    "no date": (replace("CHANGELOG.md", "1.2.0] - 2026-03-01", "1.2.0]"), "CHANGELOG.md: the section of 1.2.0 has no date"),
    "no such date": (replace("CHANGELOG.md", "2026-03-01", "2026-02-30"), "CHANGELOG.md: the section of 1.2.0 has no date"),
    "empty section": (replace("CHANGELOG.md", "- Something.\n", ""), "CHANGELOG.md: the section of 1.2.0 is empty"),
    "left over": (
        replace("CHANGELOG.md", "[Unreleased]\n", "[Unreleased]\n\n- More.\n"),
        "CHANGELOG.md: entries are left under Unreleased",
    ),
    "form": (replace("settings.ini", "1.2.0", "1.2"), "settings.ini: the version 1.2 is not of the form"),
    "citation version": (
        replace("CITATION.cff", "\nversion: 1.2.0", "\nversion: 1.1.0"),
        "CITATION.cff: version is 1.1.0, settings.ini says 1.2.0",
    ),
    "citation date": (
        replace("CITATION.cff", "2026-03-01", "2026-03-02"),
        "CITATION.cff: date-released is 2026-03-02, CHANGELOG.md says 2026-03-01",
    ),
    "no citation date": (replace("CITATION.cff", "date-released: 2026-03-01\n", ""), "CITATION.cff: date-released is missing"),
}


@pytest.mark.parametrize("case", METADATA)
def test_metadata_that_disagree_are_named(ready: Path, case: str) -> None:
    edit, fault = METADATA[case]
    edit(ready)
    done = release_check(ready, "--only-metadata")
    assert done.returncode == 1
    assert any(line.startswith(fault) for line in done.stdout.splitlines()), done.stdout


TREE: dict[str, tuple[Edit, str]] = {
    "new file": (lambda root: (root / "new.txt").write_text(""), "new.txt: not committed"),
    "edit": (replace("CHANGELOG.md", "Something", "Something else"), "CHANGELOG.md: not committed"),
    "tagged": (lambda root: git(root, "tag", "v1.2.0"), "settings.ini: v1.2.0 is tagged already; raise the version"),
}


@pytest.mark.parametrize("case", TREE)
def test_a_tree_that_must_not_be_released_is_named(ready: Path, case: str) -> None:
    edit, fault = TREE[case]
    edit(ready)
    done = release_check(ready)
    assert (done.returncode, done.stdout.splitlines()) == (1, [fault])
    assert release_check(ready, "--only-metadata").returncode == 0


def test_this_version_is_read() -> None:
    assert version_of(ROOT) == META["version"]
    assert re.search(r"^release-check:.*\n(?:\t.*\n)*\t@\$\(MAKE\) .*\btest lint book dist-check\n", MAKEFILE, re.M)
