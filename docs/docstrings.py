"""The extension `numpydoc`, with its template of a docstring compiled once.

By itself it compiles the template again for each docstring, which takes most of its time.
"""

from pathlib import Path

from jinja2 import FileSystemLoader
from jinja2.sandbox import SandboxedEnvironment
from numpydoc import docscrape, docscrape_sphinx, numpydoc

FOLDER = Path(docscrape_sphinx.__file__).parent / "templates"
TEMPLATE = SandboxedEnvironment(loader=FileSystemLoader(FOLDER)).get_template(
    "numpydoc_docstring.rst"
)


def get_doc_object(obj, what=None, doc=None, config=None, builder=None):
    """Return the parsed docstring of an object, as the function of this name in `numpydoc` does."""
    return docscrape.get_doc_object(
        obj,
        what=what,
        doc=doc,
        config={**(config or {}), "template": TEMPLATE},
        class_doc=docscrape_sphinx.SphinxClassDoc,
        func_doc=docscrape_sphinx.SphinxFunctionDoc,
        obj_doc=docscrape_sphinx.SphinxObjDoc,
    )


def setup(app):
    """Register `numpydoc` with the function above."""
    return numpydoc.setup(app, get_doc_object)
