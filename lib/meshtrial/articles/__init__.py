"""What published comparisons print, held against their own numbers by the same inference as a study."""
