"""The PDF's checker finds each fault in small excerpts of what TeX writes; without TeX, `make pdf` says what to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import check_pdf
import pytest
from check_book import settings
from conftest import ROOT

# ---- the log

TEX = "first\nsecond line of code\n\\end{tabulary}\n"
WIDE = r"Overfull \hbox (29.7pt too wide) in paragraph at lines 3--3"
LOG = {
    "wide": (WIDE, "a line, table or equation runs over the margin by 29.7 pt (in paragraph at lines 3--3): \\end{tabulary}"),
    "display": (r"Overfull \hbox (12.0pt too wide) detected at line 2", "runs over the margin by 12.0 pt (at line 2): second line of code"),
    "high": (r"Overfull \vbox (44.1pt too high) has occurred while \output is active", "a page runs over the bottom by 44.1 pt"),
    "glyph": (
        "Missing character: There is no λ (U+03BB) in font [lmroman10-regular.otf]/OT:script=latn;language=dflt;!",
        "the font lmroman10-regular.otf has no λ U+03BB: write it as $mathematics$",
    ),
    "reference": (
        "LaTeX Warning: Reference `equation:nbs/02_kernels:eq-a' on page 36 undefined on input line 2203.",
        "TeX could not resolve: Reference `equation:nbs/02_kernels:eq-a'",
    ),
    "citation": ("LaTeX Warning: Citation `a' on page 3 undefined on input line 22.", "TeX could not resolve: Citation `a'"),
    "twice": ("LaTeX Warning: Label `a' multiply defined.", "TeX could not resolve: Label `a' multiply defined"),
}


@pytest.mark.parametrize("case", LOG)
def test_what_tex_complains_of_is_a_fault(case: str) -> None:
    line, fault = LOG[case]
    (found,) = check_pdf.log_faults(f"This is XeTeX\n\n{line}\n[12]\n", TEX)
    assert fault in found


@pytest.mark.parametrize(
    "line",
    [
        r"Overfull \hbox (9.9pt too wide) in paragraph at lines 3--3",
        r"Underfull \hbox (badness 10000) in paragraph at lines 3--3",
        "LaTeX Font Warning: Some font shapes were not available, defaults substituted.",
    ],
)
def test_what_no_reader_notices_is_none(line: str) -> None:
    assert list(check_pdf.log_faults(line, TEX)) == []


# ---- the order

TOC = r"""\contentsline {chapter}{Introduction}{1}{chapter*.3}%
\contentsline {part}{I\hspace {1em}Foundations}{5}{part.1}%
\contentsline {chapter}{\numberline {1}What a model reads: prompts}{6}{chapter.1}%
\contentsline {section}{\numberline {1.1}A regression problem}{7}{section.1.1}%
\contentsline {part}{II\hspace {1em}Reference}{196}{part.2}%
\contentsline {chapter}{API \sphinxstyleliteralintitle {ols\_x}}{202}{chapter*.156}%
\contentsline {chapter}{Index}{234}{section*.287}%
"""
WANTED = [
    ("chapter", "", "Introduction"),
    ("part", "", "Foundations"),
    ("chapter", "1", "What a model reads: prompts"),
    ("part", "", "Reference"),
    ("chapter", "", "API `ols_x`"),
]
CONTENTS = {
    "number": (r"\numberline {1}What", r"\numberline {2}What", "'What a model reads: prompts' has the number 2, in the HTML it has 1"),
    "no number": (r"\numberline {1}What", "What", "'What a model reads: prompts' has the number none, in the HTML it has 1"),
    "numbered": ("{API", r"{\numberline {2}API", "'API `ols_x`' has the number 2, in the HTML it has none"),
    "part": ("Foundations", "Foundation", "the part 'Foundations' is missing"),
    "chapter": ("prompts", "pompts", "the chapter 'What a model reads: pompts' is not in _toc.yml"),
    "order": (TOC, "".join(reversed(TOC.splitlines(keepends=True))), "parts and chapters are not in the order of _toc.yml"),
}


def test_the_order_of_the_contents_passes() -> None:
    assert list(check_pdf.contents_faults(check_pdf.printed(TOC), WANTED)) == []


@pytest.mark.parametrize("case", CONTENTS)
def test_another_order_or_number_is_a_fault(case: str) -> None:
    old, new, fault = CONTENTS[case]
    assert old in TOC
    faults = list(check_pdf.contents_faults(check_pdf.printed(TOC.replace(old, new)), WANTED))
    assert any(fault in found for found in faults), faults


def test_the_contents_of_the_book_are_counted() -> None:
    found = check_pdf.expected(ROOT)
    numbers = [number for _, number, _ in found if number]
    assert numbers == [str(i + 1) for i in range(len(numbers))] and len(numbers) >= 10
    assert ("chapter", "", "Notation") in found and ("part", "", "Foundations") in found


# ---- the pages


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("fine\fby (??) we have", "page 2 of the file shows an unresolved number: 'by (??) we have'"),
        ("    #| hide\nx = 1", "page 1 of the file shows a directive: '#| hide'"),
        (":::{note} A", "shows a raw fence"),
        ("see {eq}`eq-a`", "shows a raw role"),
    ],
)
def test_what_no_page_may_show(text: str, fault: str) -> None:
    (found,) = check_pdf.text_faults(text)
    assert fault in found
    assert list(check_pdf.text_faults("Is it? [1] x[::2] {a: b}")) == []


CELLS = {
    "nbs/a": [
        (True, "x = ols(a, b)\n    y = 'long line that the paper must break'"),
        (False, "import matplotlib.pyplot as hidden_from_readers"),
    ]
}
PAGE = "Text\n x = ols(a, b)\n y = 'long line that the\n ↪ paper must break'\n"


def test_code_is_whole_and_hidden_cells_stay_hidden() -> None:
    assert list(check_pdf.code_faults(PAGE, CELLS)) == []
    assert list(check_pdf.code_faults(PAGE.replace("must break", "must"), CELLS)) == [
        "nbs/a: a line of code is cut or missing: y = 'long line that the paper must break'"
    ]
    assert list(check_pdf.code_faults(PAGE + CELLS["nbs/a"][1][1], CELLS)) == [
        "nbs/a: a hidden cell is shown: import matplotlib.pyplot as hidden_from_readers"
    ]


FIGURE = r"\begin{figure}\sphinxincludegraphics{{a}.png}\caption{A.}\label{\detokenize{nbs/a:fig-a}}\end{figure}"


def test_figures_have_images_and_links_lead_somewhere() -> None:
    assert list(check_pdf.tex_faults(FIGURE + r"\sphinxhref{https://a.example/}{x}", {"nbs/a": ("fig-a",)})) == []
    assert list(check_pdf.tex_faults(FIGURE.replace("sphinxincludegraphics", "relax"), {"nbs/a": ("fig-a",)})) == [
        "nbs/a: the figure 'fig-a' lacks its image"
    ]
    assert list(check_pdf.tex_faults(r"\sphinxhref{../_modules/a.html}{x}", {})) == ["a link leads nowhere in a PDF: ../_modules/a.html"]


def test_folded_answers_and_imports_count_as_shown() -> None:
    cells = check_pdf.code_cells(ROOT / "nbs" / "10_ols_transformer.ipynb")
    assert {shown for shown, _ in cells} == {True, False}
    assert any(shown and code.startswith("from __future__") for shown, code in cells)
    assert not any("#|" in code for _, code in cells)


# ---- the tools


def test_no_pdf_is_a_fault(tmp_path: Path) -> None:
    faults, pages = check_pdf.check(tmp_path, ROOT)
    assert (len(faults), pages) == (1, 0) and "build it first, with make pdf" in faults[0]


def test_without_tex_one_line_says_what_to_install(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "tools" / "build_pdf.py"), "--have-tex"]
    done = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "")
    (line,) = done.stdout.splitlines()
    assert "latexmk, xelatex, xindy" in line and "apt install texlive-xetex" in line


def test_the_built_pdf_passes() -> None:
    if not (ROOT / "_build" / "pdf" / "book.pdf").is_file():
        pytest.skip("no PDF is built")
    faults, pages = check_pdf.check(ROOT / "_build" / "pdf", ROOT)
    assert faults == [] and pages > 100
    info = subprocess.run(["pdfinfo", str(ROOT / "_build" / "pdf" / "book.pdf")], capture_output=True, text=True, check=True).stdout
    assert settings(ROOT)["author"] in info and settings(ROOT)["title"] in info
