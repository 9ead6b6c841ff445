"""The site: its equations, and the members that the reference has."""

import importlib
import inspect
from importlib.util import module_from_spec, spec_from_file_location
from xml.etree import ElementTree

import pytest

from helpers.commands import ROOT


def load(name):
    """Return a module of docs/."""
    spec = spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow  # they need Sphinx, which the long checks install
class TestEquations:
    """`docs/mathml.py` writes equations as MathML."""

    @pytest.fixture
    def convert(self):
        pytest.importorskip("sphinx", reason='the site needs Sphinx: pip install -e ".[docs]"')
        mathml = load("mathml")
        return lambda text, **options: mathml.convert(text, None, is_block=False, **options)

    @pytest.mark.parametrize("accent", ["hat", "bar", "tilde", "dot", "vec", "check"])
    @pytest.mark.parametrize(
        "text", [r"\{} y_k", r"\{}{{y}}_{{k-1}}", r"a + {{\{} y}}_k^2", r"\sum_{{i=1}}^n \{} y_i"]
    )
    def test_the_index_of_an_accented_symbol_stands_beside_it(self, convert, accent, text):
        root = ElementTree.fromstring(convert(text.format(accent)))
        (beside,) = root.findall(".//{*}msub")
        symbol, index = beside
        assert next(part.text for part in symbol) == "y"
        assert symbol.tag.endswith("}mover")
        assert symbol.get("accent") == "true"
        assert index.tag.endswith(("}mi", "}mrow"))
        limits = root.findall(".//{*}munderover")
        assert len(limits) == text.startswith(r"\sum")

    @pytest.mark.parametrize(
        "text", [r"\sum_{i=1}^n x_i", r"\max_i x", r"\hat y^2", "x_k", r"\log p(y \mid x)"]
    )
    def test_other_indices_stay_where_they_are(self, convert, text):
        from docutils.utils.math.latex2mathml import tex2mathml

        assert convert(text) == tex2mathml(text, as_block=False)

    def test_names_of_functions_may_stand_beside_accents(self, convert):
        root = ElementTree.fromstring(convert(r"\log \hat y_k + \mathrm{diag}(x)"))
        assert len(root.findall(".//{*}msub")) == 1
        assert "log" in "".join(root.itertext())

    def test_an_equation_that_cannot_be_converted_is_shown_as_text(self, convert):
        assert convert(r"a < \foo{b} & c") == r"<code>a &lt; \foo{b} &amp; c</code>"


class TestInternalMembers:
    """`docs/generate.py` names the members that the reference leaves out, by class."""

    internal = load("generate").INTERNAL_MEMBERS

    @pytest.mark.parametrize("name", sorted(internal))
    def test_it_is_a_member_of_a_public_class(self, name):
        kind, member = name.split(".")
        documented = getattr(importlib.import_module("sysid"), kind)
        assert member in vars(documented) or member in documented.__annotations__

    def test_codes_and_addresses_of_all_public_classes_are_among_them(self):
        public = importlib.import_module("sysid")
        kinds = {name: getattr(public, name) for name in public.__all__}
        found = {
            f"{name}.{member}"
            for name, kind in kinds.items()
            if inspect.isclass(kind)
            for member in ("address", "code")
            if member in vars(kind)
        }
        assert found == self.internal
