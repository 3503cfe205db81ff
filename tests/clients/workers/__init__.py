"""Programs that drive one client each, a cell of the matrix at a time: see `runtime`."""
