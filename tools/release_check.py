"""Whether this version may be released, one line for each thing that is missing; exit 1 if there is any.

    python tools/release_check.py [--only-metadata]

The version of settings.ini needs a dated section in CHANGELOG.md, with nothing left under Unreleased, and the same version and date in
CITATION.cff; the tree must be as committed and the version not tagged yet. `--only-metadata` reads the files and asks git nothing.
`make release-check` runs the tests, the book and the trial installation between two runs of this.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from datetime import date
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
SECTION = re.compile(r"^## \[([^\]]+)\](?: - (\S+))?[ \t]*$", re.M)

Faults = Iterator[str]


def version_of(root: Path) -> str:
    config = ConfigParser(delimiters=["="])
    config.read(root / "settings.ini", encoding="utf-8")
    return config["DEFAULT"]["version"]


def sections(changelog: str) -> dict[str, tuple[str | None, str]]:
    """Version -> its date, if it has one, and its text."""
    _, *parts = SECTION.split(changelog)
    return {version: (day, text.strip()) for version, day, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True)}


def is_date(text: str | None) -> bool:
    try:
        return bool(text) and date.fromisoformat(str(text)).isoformat() == text
    except ValueError:
        return False


def metadata_faults(root: Path) -> Faults:
    """What settings.ini, CHANGELOG.md and CITATION.cff do not say alike."""
    version = version_of(root)
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        yield f"settings.ini: the version {version} is not of the form 1.2.3"
    found = sections((root / "CHANGELOG.md").read_text("utf8"))
    day, text = found.get(version, (None, ""))
    if version not in found:
        yield f"CHANGELOG.md: no section '## [{version}] - YYYY-MM-DD'; move what is under Unreleased there"
    elif not is_date(day):
        yield f"CHANGELOG.md: the section of {version} has no date of the form 2026-01-31"
    elif not text:
        yield f"CHANGELOG.md: the section of {version} is empty"
    if version in found and found.get("Unreleased", (None, ""))[1]:
        yield f"CHANGELOG.md: entries are left under Unreleased; move them to {version}, or raise the version"
    citation = yaml.safe_load((root / "CITATION.cff").read_text("utf8"))
    if str(citation["version"]) != version:
        yield f"CITATION.cff: version is {citation['version']}, settings.ini says {version}"
    released = citation.get("date-released")
    if released is None:
        yield "CITATION.cff: date-released is missing"
    elif is_date(day) and str(released) != day:
        yield f"CITATION.cff: date-released is {released}, CHANGELOG.md says {day}"


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout


def tree_faults(root: Path) -> Faults:
    """What git says against a release."""
    if not (root / ".git").exists():
        yield "not a git clone: release from one"
        return
    for line in git(root, "status", "--porcelain").splitlines():
        yield f"{line[3:]}: not committed"
    tag = f"v{version_of(root)}"
    if tag in git(root, "tag", "--list").split():
        yield f"settings.ini: {tag} is tagged already; raise the version"


def main() -> int:
    parser = argparse.ArgumentParser(description="Say what a release of this version still lacks; exit 1 if anything.")
    parser.add_argument("--only-metadata", action="store_true", help="do not ask git about the tree and its tags")
    parser.add_argument("--source", type=Path, default=ROOT, help="the repository")
    arguments = parser.parse_args()
    faults = list(metadata_faults(arguments.source))
    if not arguments.only_metadata:
        faults += tree_faults(arguments.source)
    print("\n".join(faults) if faults else f"{version_of(arguments.source)}: metadata ready")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
