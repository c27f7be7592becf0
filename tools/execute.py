"""Execute notebooks from cleared outputs, two at a time, and keep the results for the tests and the book.

    python tools/execute.py [nbs/NAME.ipynb ...] [--workers 2]

An executed copy lies in `_build/executed/` under a key made of everything the outputs depend on: the notebook's sources, the modules
it imports (and theirs), the package's data files and the pinned versions. Whoever edits the library therefore re-executes just the
notebooks that depend on the edit. A cell that raises, or prints to stderr (a warning does), fails the run.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import os
import re
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import nbformat
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "transformer_ols"
DIRECTIVE = re.compile(r"^#\|\s*([\w-]+)\s*:?\s*(.*?)\s*$")


def directives(source: str) -> dict[str, str]:
    """The `#| name: value` lines at the top of a cell."""
    found: dict[str, str] = {}
    for line in source.splitlines():
        if not (match := DIRECTIVE.match(line)):
            break
        found[match[1]] = match[2]
    return found


def cleared(text: str) -> NotebookNode:
    """The notebook without outputs."""
    nb = nbformat.reads(text, as_version=4)
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return nb


# ---- what a notebook depends on


def providers(package: Path) -> dict[str, str]:
    """Public name -> the module that defines it, from the modules' `__all__`."""
    found = {}
    for path in package.glob("[!_]*.py"):
        for node in ast.parse(path.read_text("utf8")).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                found |= dict.fromkeys(ast.literal_eval(node.value), path.stem)
    return found


def imported(tree: ast.AST, package: Path) -> set[str]:
    """The package's modules that a syntax tree imports, by their own name or by one of theirs; the bare package means all."""
    modules = {path.stem for path in package.glob("[!_]*.py")}
    homes = {**providers(package), **{module: module for module in modules}}
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = f"{PACKAGE}.{node.module or ''}".rstrip(".") if node.level else node.module or ""
            names = [f"{base}.{alias.name}" if base == PACKAGE else base for alias in node.names]
        else:
            continue
        for top, _, rest in (name.partition(".") for name in names):
            if top == PACKAGE:
                home = homes.get(rest.partition(".")[0])
                found |= {home} if home else modules
    return found


def closure(modules: set[str], package: Path) -> set[str]:
    """The modules and all that they import in turn."""
    seen: set[str] = set()
    queue = set(modules)
    while queue:
        module = queue.pop()
        seen.add(module)
        queue |= imported(ast.parse((package / f"{module}.py").read_text("utf8")), package) - seen
    return seen


def parse_cells(nb: NotebookNode) -> ast.Module:
    """One syntax tree for all code cells; shell and magic lines are left out."""
    body: list[ast.stmt] = []
    for cell in nb.cells:
        if cell.cell_type == "code":
            lines = ("" if re.match(r"\s*[%!]", line) else line for line in cell.source.splitlines())
            body += ast.parse("\n".join(lines)).body
    return ast.Module(body=body, type_ignores=[])


def key(text: str, root: Path = ROOT) -> str:
    """The digest of a notebook and of all that its outputs depend on."""
    nb, package = cleared(text), root / PACKAGE
    files = {package / f"{module}.py" for module in closure(imported(parse_cells(nb), package), package)}
    files |= {path for path in package.rglob("*") if path.is_file() and path.suffix not in {".py", ".pyc"}}
    files |= {root / "constraints.txt", package / "__init__.py"}
    digest = hashlib.sha256()
    for cell in nb.cells:
        digest.update(f"{cell.cell_type}\0{cell.source}\0".encode())
    for path in sorted(files):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def executed_path(text: str, root: Path = ROOT) -> Path:
    """Where the executed copy of a notebook with this text lies, or will lie."""
    return root / "_build" / "executed" / f"{key(text, root)}.ipynb"


# ---- running


def environment() -> dict[str, str]:
    """One thread, fixed hashing, inline figures, and nothing from the user's own Jupyter or IPython set-up."""
    private = ROOT / "_build" / "jupyter"
    return {
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        "JUPYTER_PREFER_ENV_PATH": "1",
        "JUPYTER_CONFIG_DIR": str(private / "config"),
        "IPYTHONDIR": str(private / "ipython"),
    }


def faults(nb: NotebookNode) -> list[str]:
    """Cells that raised without saying so, or printed to stderr, as `cell 7 (first line): what`."""
    found = []
    for number, cell in enumerate(nb.cells, 1):
        if cell.cell_type != "code":
            continue
        first = next((line for line in cell.source.splitlines() if line and not DIRECTIVE.match(line)), "")
        for output in cell.outputs:
            if output.output_type == "error" and directives(cell.source).get("error") != "true":
                trace = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(output.traceback))
                found.append(f"cell {number} ({first}) failed:\n{trace}")
            elif output.get("name") == "stderr":
                found.append(f"cell {number} ({first}) printed to stderr, a warning or a log:\n{output.text}")
    return found


def execute(text: str, folder: Path) -> NotebookNode:
    """Run every cell in a fresh kernel whose working folder is `folder`; a failing cell stops the run and is left in the result."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    nb = cleared(text)
    for cell in nb.cells:
        if cell.cell_type == "code" and directives(cell.source).get("error") == "true":
            cell.metadata["tags"] = [*cell.metadata.get("tags", []), "raises-exception"]
    where = {"metadata": {"path": str(folder)}}
    client = NotebookClient(nb, timeout=900, kernel_name="python3", extra_arguments=["--log-level=40"], resources=where)
    try:
        client.execute()
    except CellExecutionError:
        assert faults(nb), "the kernel reported a failure that no cell shows"
    return nb


def run_one(path: Path) -> tuple[Path, float | None, list[str]]:
    """Execute one notebook unless a result with its key is there. Returns the path, the seconds (None: was there) and the faults."""
    os.environ.update(environment())
    Path(os.environ["IPYTHONDIR"]).mkdir(parents=True, exist_ok=True)
    text = path.read_text("utf8")
    target = executed_path(text)
    if target.exists():
        return path, None, []
    start = time.perf_counter()
    nb = execute(text, path.parent)
    wrong = faults(nb)
    if not wrong:
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_suffix(f".{os.getpid()}.part")
        nbformat.write(nb, part)
        part.replace(target)
    return path, time.perf_counter() - start, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description="Execute notebooks into _build/executed; exit 1 if a cell fails or warns.")
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all of nbs/")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    paths = [path.resolve() for path in arguments.notebooks] or sorted((ROOT / "nbs").glob("*.ipynb"), key=lambda p: p.name, reverse=True)
    if not paths:
        print("no notebooks in nbs/")
        return 1
    failed = 0
    with ProcessPoolExecutor(arguments.workers) as pool:
        for path, seconds, wrong in pool.map(run_one, paths):
            state = "FAILED" if wrong else "as before" if seconds is None else f"{seconds:.1f} s"
            print(f"{path.parent.name}/{path.name:30} {state}", flush=True)
            for fault in wrong:
                print(f"{path.parent.name}/{path.name}, {fault}", flush=True)
            failed += bool(wrong)
    print(f"{len(paths) - failed} notebooks executed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
