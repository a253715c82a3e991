"""Raw numbers, written once: the run record, the store on disk, its checksums, and the tidy tables made from it."""
