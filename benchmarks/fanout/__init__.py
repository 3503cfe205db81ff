"""What an audience costs: thousands of subscribers at the end of one log, at nodes and at the broker itself."""
