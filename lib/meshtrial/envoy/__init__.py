"""Envoy as both backends build it: bootstraps, HTTP filters, and the keys and tokens made at run time."""
