"""What shadow topics cost: one consumer of a shadow against one of its source, and many subscribers at a log's end."""
