"""Settings of the documentation site."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

import generate  # noqa: E402

from sysid import __version__  # noqa: E402

project = "sysid"
copyright = "the sysid developers"
release = version = __version__
extensions = [
    *(
        "myst_parser",
        "sphinx.ext.autodoc",
        "sphinx.ext.autosummary",
        "numpydoc",
        "sphinx.ext.mathjax",
    ),
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = [
    "build",
    "tutorials",
    "sg_execution_times.rst",
    "**/sg_execution_times.rst",
]
templates_path: list[str] = []

html_theme = "furo"
html_title = f"sysid {version}"
html_show_sourcelink = False

myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
myst_heading_anchors = 3

autosummary_generate = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True, "show-inheritance": False}
numpydoc_show_class_members = False
default_role = "code"

sphinx_gallery_conf = {
    "examples_dirs": "tutorials",
    "gallery_dirs": "tutorials_run",
    "filename_pattern": r"/\d_",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "remove_config_comments": True,
    "min_reported_time": 1e9,
    "show_memory": False,
    "show_signature": False,
    "abort_on_example_error": True,
    "copyfile_regex": r"",
}
suppress_warnings = ["config.cache"]  # functions among the settings of the gallery

ARRAY_LIKE = (
    "_Buffer | _SupportsArray[dtype[Any]] | _NestedSequence[_SupportsArray[dtype[Any]]] | complex | bytes | str | "
    "_NestedSequence[complex | bytes | str]"
)

generate.write(HERE / "generated")


def skip(app, what, name, found, is_skipped, options):
    """Methods that scikit-learn adds to its estimators, whose text refers to pages of its own."""
    return True if name.startswith("set_") and name.endswith("_request") else None


def shorten(app, what, name, found, options, signature, returned):
    """Write `ArrayLike`, since what it stands for is longer than all the rest of a signature."""
    return tuple(text and text.replace(ARRAY_LIKE, "ArrayLike") for text in (signature, returned))


def setup(app):
    """Connect to the events of Sphinx, which calls this function."""
    app.connect("autodoc-process-signature", shorten)
    app.connect("autodoc-skip-member", skip)
