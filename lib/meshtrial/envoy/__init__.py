"""Envoy configuration for both backends: bootstraps, HTTP filters, and keys and tokens made at run time."""
