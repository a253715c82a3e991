"""What is compared, under which load, by which rules and in which order: all that is fixed before the first run."""
