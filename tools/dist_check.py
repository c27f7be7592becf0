"""Build the package, install it where nothing else is, and use it as a reader would; one line per fault, exit 1 if there is any.

    python tools/dist_check.py [--dist-only] [ROOT]

The tracked files are copied, so nothing untracked can help. Of sdist and wheel the contents and metadata are checked; then the wheel goes
with its real dependencies into a fresh virtual environment, first the core alone, then with extras, and is used from an empty folder. What
importing costs is written to _build/dist_report.json, and is not a fault.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterator
from configparser import ConfigParser
from email import message_from_bytes
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "transformer_ols"
CORE = {"numpy", "scipy", "torch", "safetensors", "tqdm"}
EXTRAS = {"plot", "sklearn", "notebook", "book", "dev"}
NEEDS = {"plots": "plot"}  # module: the extra without which it cannot be imported
REPEATS = 5

BARE = """
import importlib, pkgutil, sys, transformer_ols
from transformer_ols import *
needs = dict(pair.split("=") for pair in sys.argv[1:])
for module in sorted(m.name for m in pkgutil.iter_modules(transformer_ols.__path__) if not m.name.startswith("_")):
    try:
        exec(f"from transformer_ols.{module} import *", {})
        if module in needs:
            print(f"transformer_ols.{module} was to need [{needs[module]}] and does not; correct the table")
    except Exception as error:
        expected = f"pip install 'transformer_ols[{needs.get(module)}]'"
        if module not in needs or not isinstance(error, ImportError) or expected not in str(error):
            print(f"from transformer_ols.{module} import *: {type(error).__name__}: {error}")
"""

TYPED = """
import torch
from torch import Tensor
from transformer_ols import Gaussian, LinearFit, OLSTransformer, kernel_ridge, linear_prompts, ols, softmax_attention
from transformer_ols.solvers import ConjugateGradient, Solution, solve

x, y = torch.eye(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
fit: LinearFit = ols(x, y, fit_intercept=True)
coef: Tensor = fit.coef
answers: Tensor = OLSTransformer.from_data(x, y)(x)
dual: Tensor = kernel_ridge(x, y, Gaussian(1.0), ridge=0.1).dual_coef
output, weights = softmax_attention(x, x, x)
found: Solution = solve(x, y, ConjugateGradient(), steps=3)
pairs: Tensor = linear_prompts(2, 5, 3).x
"""
MISTYPED = "\nwrong: int = ols(x, y).coef\n"

TIMED = "import time; import torch; t = time.perf_counter(); {}; print(time.perf_counter() - t)"
TORCH = "import time; t = time.perf_counter(); import torch; print(time.perf_counter() - t)"


def settings(root: Path) -> dict[str, str]:
    """What settings.ini says."""
    config = ConfigParser(delimiters=["="])
    config.read(root / "settings.ini", encoding="utf-8")
    return dict(config["DEFAULT"])


def tracked(root: Path, under: str = ".") -> list[str]:
    """The tracked files that are there, relative to the root."""
    listed = subprocess.run(["git", "ls-files", "-z", under], cwd=root, capture_output=True, text=True, check=True).stdout
    return sorted(name for name in listed.split("\0") if name and (root / name).is_file())


def copy_tracked(root: Path, target: Path) -> Path:
    """A copy of the tracked files as they stand in the working tree."""
    for name in tracked(root):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, target / name)
    return target


# ---- contents and metadata


def build(source: Path, target: Path, kind: str) -> Path:
    """One `sdist` or `wheel` of a source tree, by the build tools of this environment."""
    command = [sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"python -m build --{kind} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    (made,) = target.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return made


def wheel_files(wheel: Path) -> dict[str, bytes]:
    """Path inside the wheel to content."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


def sdist_files(sdist: Path) -> set[str]:
    """Paths inside the sdist, without its top folder."""
    with tarfile.open(sdist) as archive:
        return {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}


def content_faults(wheel: Path, sdist: Path, root: Path) -> Iterator[str]:
    """The package's tracked files, and nothing else, must travel."""
    wanted = set(tracked(root, PACKAGE))
    info = re.compile(rf"{PACKAGE}-[^/]+\.dist-info/")
    carried = {name for name in wheel_files(wheel) if not info.match(name)}
    yield from (f"wheel: {name} is missing; add it to package_data in setup.py" for name in sorted(wanted - carried))
    yield from (f"wheel: {name} is no tracked file of {PACKAGE}/" for name in sorted(carried - wanted))
    sent = {name for name in sdist_files(sdist) if not re.match(rf"{PACKAGE}\.egg-info/|PKG-INFO$|setup\.cfg$", name)}
    yield from (f"sdist: {name} is missing; add it to MANIFEST.in" for name in sorted(wanted - sent))
    yield from (f"sdist: {name} is no tracked file" for name in sorted(sent - set(tracked(root))))


def metadata_faults(wheel: Path, root: Path) -> Iterator[str]:
    """Core requirements, extras, Python and licence are as promised."""
    files = wheel_files(wheel)
    message = message_from_bytes(next(content for name, content in files.items() if name.endswith(".dist-info/METADATA")))
    required = message.get_all("Requires-Dist", [])
    core = {re.split(r"[^\w-]", line)[0] for line in required if "extra ==" not in line}
    yield from (f"METADATA: the core requires {name}, which belongs into an extra" for name in sorted(core - CORE))
    yield from (f"METADATA: the core does not require {name}" for name in sorted(CORE - core))
    extras = set(message.get_all("Provides-Extra", []))
    if extras != EXTRAS:
        yield f"METADATA: the extras are {', '.join(sorted(extras))}, not {', '.join(sorted(EXTRAS))}"
    if message["Requires-Python"] != f">={settings(root)['min_python']}":
        yield f"METADATA: Requires-Python is {message['Requires-Python']}, not min_python of settings.ini"
    if not any(name.endswith("/LICENSE") for name in files):
        yield "wheel: no LICENSE"


def same_wheel_faults(one: Path, other: Path) -> Iterator[str]:
    """The wheel of the sdist is the wheel of the tree."""
    here, there = wheel_files(one), wheel_files(other)
    for name in sorted(here.keys() | there.keys()):
        if here.get(name) != there.get(name) and not name.endswith("/RECORD"):
            yield f"{name}: the wheel built from the sdist differs from the wheel built from the tree"


# ---- use


def clean(environment: Path) -> dict[str, str]:
    """Variables in which only the given virtual environment can be seen."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    path = os.pathsep.join([str(environment / "bin"), os.environ.get("PATH", "")])
    return {**kept, "PATH": path, "OMP_NUM_THREADS": "1", "PYTHONNOUSERSITE": "1"}


class Reader:
    """Someone who has just this virtual environment, in an empty folder."""

    def __init__(self, folder: Path) -> None:
        self.environment, self.desk = folder / "venv", folder / "desk"
        self.desk.mkdir()
        venv.create(self.environment, with_pip=True)
        self.python = self.environment / "bin" / "python"

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Python."""
        return subprocess.run([self.python, *arguments], cwd=self.desk, env=clean(self.environment), capture_output=True, text=True)

    def install(self, *requirements: str, constraints: Path) -> None:
        """Install with all dependencies, under the constraints."""
        done = self.run("-m", "pip", "install", "-q", "-c", str(constraints), *requirements)
        if done.returncode:
            raise SystemExit(f"pip install {' '.join(requirements)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")

    def faults(self, what: str, *arguments: str) -> Iterator[str]:
        """Whatever a silent command says."""
        done = self.run(*arguments)
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        yield from (f"{what}: {line}" for line in said)
        if done.returncode and not said:
            yield f"{what}: exit {done.returncode}"


def examples(readme: str) -> list[tuple[str, str]]:
    """Each Python block of the README that is followed by what it prints."""
    return re.findall(r"^```python\n(.*?)^```\n\s*^```text\n(.*?)^```$", readme, re.M | re.S)


def example_faults(reader: Reader, readme: str) -> Iterator[str]:
    """The README's examples print what it says."""
    found = examples(readme)
    if not found:
        yield "README.md: no example"
    for table in re.findall(r"^```csv\n(.*?)^```$", readme, re.M | re.S):
        (reader.desk / "data.csv").write_text(table)
    for number, (code, printed) in enumerate(found, 1):
        done = reader.run("-W", "error", "-c", code)
        if done.returncode or done.stderr:
            yield f"README.md, example {number}: {(done.stderr.strip() or 'no message').splitlines()[-1]}"
        elif done.stdout != printed:
            pairs = zip([*done.stdout.splitlines(), ""], [*printed.splitlines(), ""], strict=False)
            got, wanted = next(pair for pair in pairs if pair[0] != pair[1])
            yield f"README.md, example {number}: prints {got!r}, the page says {wanted!r}"


def typing_faults(reader: Reader) -> Iterator[str]:
    """`mypy --strict` of this environment sees the installed package's types: nothing wrong but the one line that is."""
    script = reader.desk / "typed.py"
    script.write_text(TYPED + MISTYPED)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull, f"--python-executable={reader.python}", script.name]
    done = subprocess.run(command, cwd=reader.desk, env=clean(reader.environment), capture_output=True, text=True)
    script.unlink()
    found = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("Found ")]
    caught = f"{script.name}:{len((TYPED + MISTYPED).splitlines())}: error: Incompatible types"
    yield from (f"mypy --strict: {line}" for line in found if not line.startswith(caught))
    if not any(line.startswith(caught) for line in found):
        yield "mypy --strict: does not see a wrong type; is py.typed there?"


def import_report(reader: Reader) -> dict[str, object]:
    """Seconds that importing takes, medians over fresh processes that take turns."""
    cases = {
        "torch": TORCH,
        "transformer_ols": TIMED.format("import transformer_ols"),
        "OLSTransformer": TIMED.format("import transformer_ols; transformer_ols.OLSTransformer"),
        "every name": TIMED.format("from transformer_ols import *"),
    }
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(REPEATS + 1):
        for name, code in cases.items():
            seconds[name].append(float(reader.run("-c", code).stdout))
    median = {name: round(statistics.median(times[1:]), 4) for name, times in seconds.items()}  # the first fills the caches
    versions = reader.run("-c", "import torch; print(torch.__version__)").stdout.strip()
    return {
        "python": platform.python_version(),
        "torch": versions,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "repeats": REPEATS,
        "seconds": {"torch": median.pop("torch"), **{f"{name}, beyond torch": value for name, value in median.items()}},
        "ratio": round(1 + median["OLSTransformer"] / statistics.median(seconds["torch"][1:]), 4),
    }


def download_faults(reader: Reader, wheel: Path, root: Path) -> Iterator[str]:
    """Published downloads run with the wheel and its extra [notebook], where they have been built."""
    tool, published = root / "tools" / "downloads.py", root / "_build" / "html"
    chapters = ["03_regression", "10_ols_transformer"]
    if tool.exists() and published.exists():
        reader.install(f"{wheel}[notebook]", constraints=root / "constraints.txt")
        command = [sys.executable, str(tool), "--run", *chapters, "--python", str(reader.python)]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True)
        if done.returncode:
            yield from (f"downloads: {line}" for line in (done.stdout + done.stderr).splitlines())


def use_faults(wheel: Path, root: Path, folder: Path) -> Iterator[str]:
    """Install the wheel, the core first, and use it."""
    reader, constraints = Reader(folder), root / "constraints.txt"
    torch = next(line for line in constraints.read_text("utf8").splitlines() if line.startswith("torch=="))
    reader.install(torch, constraints=constraints)
    reader.install(str(wheel), constraints=constraints)
    where = reader.run("-c", f"import {PACKAGE}; print({PACKAGE}.__file__)").stdout.strip()
    if not where.startswith(str(reader.environment)):
        yield f"import {PACKAGE} finds {where or 'nothing'}, not the installed package"
    yield from reader.faults("core only", "-W", "error", "-c", BARE, *(f"{module}={extra}" for module, extra in NEEDS.items()))
    yield from typing_faults(reader)
    report = import_report(reader)
    (root / "_build").mkdir(exist_ok=True)
    (root / "_build" / "dist_report.json").write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))
    reader.install(f"{wheel}[sklearn]", constraints=constraints)
    yield from example_faults(reader, (root / "README.md").read_text("utf8"))
    reader.install(f"{wheel}[plot,sklearn]", constraints=constraints)
    yield from reader.faults("with extras", "-W", "error", "-c", BARE)
    done = reader.run("-m", "pip", "check")
    if done.returncode:
        yield from (f"pip check: {line}" for line in done.stdout.splitlines())
    yield from download_faults(reader, wheel, root)


def check(root: Path, folder: Path, dist_only: bool = False) -> Iterator[str]:
    """All faults."""
    source = copy_tracked(root, folder / "tree")
    sdist = build(source, folder / "sdist", "sdist")
    wheel = build(source, folder / "wheel", "wheel")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    yield from content_faults(wheel, sdist, root)
    yield from metadata_faults(wheel, root)
    yield from same_wheel_faults(wheel, build(unpacked, folder / "again", "wheel"))
    if not dist_only:
        yield from use_faults(wheel, root, folder)


def main() -> int:
    """Print the faults."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("root", nargs="?", type=Path, default=ROOT, metavar="ROOT", help="the checkout, by default this one")
    parser.add_argument("--dist-only", action="store_true", help="contents and metadata, without installing anything")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        problems = list(check(arguments.root.resolve(), Path(folder).resolve(), arguments.dist_only))
    fine = "sdist and wheel are complete" + ("" if arguments.dist_only else ", and work where nothing else is installed")
    print("\n".join(problems) if problems else fine)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
