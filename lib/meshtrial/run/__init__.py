"""From a sealed plan to recorded runs: deploy, prove, load, hold to the gates, record."""
