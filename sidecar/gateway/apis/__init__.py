"""What a node knows of each API, one module per API key: versions, route, rule for shadows, rights, audit, handler.

To add an API is to add its module, with a `SPEC` (`spec.ApiSpec`); `table` finds it. Shared machines are outside.
"""
