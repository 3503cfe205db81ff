"""What shadow topics cost: one consumer of a shadow against one of its source."""
