"""Which topics are governed, and how: policies written down and applied by all nodes, what a client id asks for."""
