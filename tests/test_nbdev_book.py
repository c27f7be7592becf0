"""What the Sphinx extensions make of docstrings, definitions and titles; built books are tested in test_toolchain.py."""

from __future__ import annotations

import inspect

import pytest
from api_pages import cell_of, cells, definitions, myst_docstring
from cite_this import author, entry, page_entry, tex
from pybtex.database import parse_string

from transformer_ols import OLSTransformer

META = {"author": "The a_b authors", "copyright": "2026 onwards", "version": "1.0", "git_url": "", "title": "50% & more", "lib_name": "a_b"}


def docstring(text: str) -> list[str]:
    lines = text.split("\n")
    myst_docstring(None, "class", "", None, None, lines)
    return lines


def test_docstrings_are_written_as_the_notebooks_are() -> None:
    assert docstring("`x`, $L^\\top$, shape (*b, n), {cite:t}`paper2604`") == [
        r"``x``, :math:`L^\top`, shape ``(*b, n)``, :cite:t:`paper2604`"
    ]


def test_a_field_has_its_type_beside_its_name() -> None:
    assert docstring(".. attribute:: L\n\n   the factor;\n   shape\n\n   :type: torch.Tensor\n\nMore.") == [
        *[".. attribute:: L", "   :type: Tensor", "", "   the factor;", "   shape", "", "", "More."]
    ]


# ---- the cell that defines a name


def exported(module: str, name: str) -> str:
    """The text of the cell that a name's entry leads to."""
    text = inspect.getsource(__import__(module, fromlist=["_"]))
    notebook, cell = cell_of(module, name) or ("", "")
    return text.split(f"{notebook}.ipynb #{cell}\n")[1].split("# %% ")[0]


@pytest.mark.parametrize(
    ("module", "name", "begins"),
    [
        ("ols_transformer", "spectral_factor", "def spectral_factor("),
        ("ols_transformer", "SpectralFactor", "class SpectralFactor:"),
        ("ols_transformer", "SpectralFactor.rank", "class SpectralFactor:"),
        ("ols_transformer", "OLSTransformer", "class OLSTransformer("),
        ("ols_transformer", "OLSTransformer.from_data", "def _from_data("),
        ("ols_transformer", "OLSTransformer.coef", "def _coef("),
        ("kernels", "Gaussian.__call__", "class _PositiveKernel"),
        ("prompts", "Prompt.lengths", "def lengths("),
        ("prompts", "INPUTS", "INPUTS = ("),
    ],
)
def test_an_entry_leads_to_the_cell_that_defines_it(module: str, name: str, begins: str) -> None:
    assert begins in exported(f"transformer_ols.{module}", name)


def test_a_name_from_nowhere_has_no_cell() -> None:
    assert cell_of("transformer_ols.prompts", "nowhere") is None
    assert len(cells("transformer_ols.prompts")) > 5


def test_a_method_written_outside_its_class_has_a_source_and_its_own_name() -> None:
    code, tags = definitions("transformer_ols.ols_transformer")
    kind, start, _ = tags["OLSTransformer.from_data"]
    assert (kind, code.split("\n")[start - 1]) == ("def", "def _from_data(")
    members = {name: getattr(value, "fget", getattr(value, "__func__", value)) for name, value in vars(OLSTransformer).items()}
    named = {name: value.__qualname__ for name, value in members.items() if inspect.isfunction(value)}
    assert named == {name: f"OLSTransformer.{name}" for name in named}
    assert {"__init__", "from_data", "forward", "coef"} <= named.keys()
    with pytest.raises(TypeError, match=r"OLSTransformer\.from_data\(\) missing 2 required"):
        OLSTransformer.from_data()  # type: ignore[call-arg]


# ---- BibTeX


@pytest.mark.parametrize("name", ["nbs/10_ols", "nbs/index"])
def test_bibtex_parses_and_is_the_same_each_time(name: str) -> None:
    text = page_entry(name, "From $x_1$ to $\\kappa$", META)
    ((key, parsed),) = parse_string(text, "bibtex").entries.items()
    assert key == ("a_b" if name.endswith("index") else "a_b:ols")
    assert parsed.fields["year"] == "2026"
    assert parsed.fields["note"] == "Version 1.0"
    assert str(parsed.persons["author"][0]) == r"{The a\_b authors}"
    assert "{50\\% \\& more}" in parsed.fields.values()
    assert "url" not in parsed.fields
    assert text == page_entry(name, "From $x_1$ to $\\kappa$", META)


def test_special_characters_are_escaped() -> None:
    text = tex(r"a_b {c} 5% #1 x^2 ~ & \d")
    assert text == r"a\_b \{c\} 5\% \#1 x\textasciicircum{}2 \textasciitilde{} \& \textbackslash{}d"
    assert parse_string(entry("misc", "k", title=text), "bibtex").entries["k"].fields["title"] == text


def test_authors_are_joined_and_a_group_stays_whole() -> None:
    assert author("Ada Lovelace, Carl Gauss") == "Ada Lovelace and Carl Gauss"
    assert author("The Book authors") == "{The Book authors}"
