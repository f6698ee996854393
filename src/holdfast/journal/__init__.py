"""The journal: an ordered log of records on pre-allocated disk, of which everything else is a function."""
