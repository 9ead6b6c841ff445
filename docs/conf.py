"""Settings of the documentation site, for Sphinx."""

import gc
import sys
from pathlib import Path

# Nearly all objects of a site stay until its end. Looking for garbage among them as often as by
# default takes a tenth of the time.
gc.set_threshold(100_000)

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

# Before NumPy: one BLAS thread, in the tutorials too. Their matrices are small, and threads that
# wait for each other take most of the time of a processor with other work.
import experiments  # noqa: E402, F401, I001
import generate  # noqa: E402
from sphinx.util import logging  # noqa: E402

from sysid import __version__  # noqa: E402

project = "sysid"
copyright = "the sysid developers"
release = version = __version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "docstrings",
    "sphinx_gallery.gen_gallery",
    "mathml",
]
exclude_patterns = [
    "build",
    "tutorials",
    "sg_execution_times.rst",
    "**/sg_execution_times.rst",
]
templates_path: list[str] = []

html_math_renderer = "mathml"
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["cards.css", "figures.css"]
html_title = f"sysid {version}"
html_show_sourcelink = False

myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
myst_heading_anchors = 3

autosummary_generate = False  # `numpydoc` loads it
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_use_type_comments = False
autodoc_default_options = {"members": True, "show-inheritance": False}
numpydoc_show_class_members = False
default_role = "code"

logger = logging.getLogger(__name__)


def announce_tutorial(gallery_conf, script):
    """State which tutorial runs now, before its first line."""
    logger.info("running the tutorial %s: up to half a minute of processor time", Path(script).name)


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
    "reset_modules": ("matplotlib", announce_tutorial),
    "abort_on_example_error": True,
    "copyfile_regex": r"",
}
# Sphinx cannot cache the settings of the gallery, because functions are among them.
suppress_warnings = ["config.cache"]

# how Sphinx writes the type `numpy.typing.ArrayLike` in a signature
ARRAY_LIKE = (
    "_Buffer | _SupportsArray[dtype[Any]] | _NestedSequence[_SupportsArray[dtype[Any]]] | complex "
    "| bytes | str | _NestedSequence[complex | bytes | str]"
)

logger.info("writing the pages of the reference; sysid-identify runs once, for the page of files")
generate.write(HERE / "generated")


def skip_internals(app, what, name, documented, is_skipped, options):
    """Skip members that only the toolbox calls, and those that scikit-learn adds to estimators.

    The docstrings of the latter refer to pages of its own site. None leaves the decision to Sphinx.
    """
    is_request = name.startswith("set_") and name.endswith("_request")
    kind = app.env.temp_data.get("autodoc:class", "")  # name of the class that is documented
    if is_request or f"{kind}.{name}" in generate.INTERNAL_MEMBERS:
        return True
    return None


def shorten_signature(app, what, name, documented, options, signature, returned):
    """Write `ArrayLike` for its long type, in a signature and in the type that is returned."""
    shortened = []
    for text in (signature, returned):
        shortened.append(text.replace(ARRAY_LIKE, "ArrayLike") if text else text)
    return tuple(shortened)


def setup(app):
    """Connect these functions to the events of Sphinx, which calls this function."""
    app.connect("autodoc-process-signature", shorten_signature)
    app.connect("autodoc-skip-member", skip_internals)
