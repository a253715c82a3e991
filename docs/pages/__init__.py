"""Functions that make parts of pages, a module per subject: each takes a page's text and returns it as it should be."""
