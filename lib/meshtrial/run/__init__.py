"""From a sealed plan to recorded runs: deploy, verify, load, check, record."""
