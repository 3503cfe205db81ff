"""What running a node costs whoever operates it: its start, its commands, its memory, its metrics and logs."""
