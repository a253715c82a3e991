"""Sphinx makes pages of the documentation: ``make docs``.

The sources are the Markdown files and notebooks where they lie, so a link between files leads to the same place in the
checkout and on the pages. Notebooks are shown and not executed. Nothing is fetched from a network, at build or by a
reader.
"""

import shutil
import sys
from pathlib import Path

from sphinx.application import Sphinx

import meshtrial

sys.path.insert(0, str(Path(__file__).parent))

project = "meshtrial"
version = release = meshtrial.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

# As seen from the checkout, which `make docs` gives as the folder of sources.
root_doc = "README"
include_patterns = [
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSES.md", "data/README.md", "manifests/README.md"),
    *("docs/**.md", "notebooks/*.ipynb", "tests/*/README.md"),
]
exclude_patterns = [".*"]  # .venv and caches are large, and without this Sphinx looks through all of their folders
# The order of the pages, which the Markdown files themselves need not know.
CONTENTS = {
    "Start": ["docs/README", "docs/tutorials/*", "docs/troubleshooting", "docs/glossary"],
    "How-to guides": ["docs/how-to/*"],
    "Reference": ["docs/reference/*", "data/README", "manifests/README"],
    "Explanation": ["docs/method", "docs/explanation/*", "docs/coverage"],
    "Notebooks": ["notebooks/*"],
    "Contributing": [
        *("CONTRIBUTING", "docs/architecture", "docs/contributing/README", "docs/contributing/*"),
        *("tests/*/README", "CHANGELOG", "LICENSES"),
    ],
}

nb_execution_mode = "off"
myst_heading_anchors = 6  # the anchors that the repository's viewer gives headings
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"

html_theme = "sphinx_book_theme"
html_title = "meshtrial"
html_copy_source = False
html_static_path = html_css_files = ["pages.css"]
html_context = {"default_mode": "auto"}  # light or dark, as the reader's system is
html_theme_options = {
    "article_header_end": ["toggle-secondary-sidebar.html"],
    "navbar_persistent": [],
    "use_download_button": False,
}
html_sidebars = {"**": ["navbar-logo.html", "search-field.html", "sbt-sidebar-nav.html"]}


def add_contents(app: Sphinx, name: str, source: list[str]) -> None:
    """Put the contents of all pages behind the first page."""
    if name == app.config.root_doc:
        for caption, pages in CONTENTS.items():
            source[0] += "\n".join(["\n```{toctree}", ":hidden:", ":glob:", f":caption: {caption}", *pages, "```\n"])


def add_meshes(app: Sphinx, name: str, source: list[str]) -> None:
    """Add what each mesh is given to its page, from the files that the runs apply."""
    if name == "docs/reference/mesh-configuration":
        from pages.meshes import configuration

        source[0] = configuration(source[0])


def add_index(app: Sphinx, failure: Exception | None) -> None:
    """Give web servers the first page under the name that they ask for."""
    if failure is None and app.builder.name == "html":
        shutil.copyfile(Path(app.outdir, "README.html"), Path(app.outdir, "index.html"))


def setup(app: Sphinx) -> None:
    """Register what Sphinx calls."""
    app.connect("source-read", add_contents)
    app.connect("source-read", add_meshes)
    app.connect("build-finished", add_index)
