"""What is added to the programs of `examples/clients` so that they go over SASL_SSL: settings from the environment.

`SECURED_MECHANISM`, `SECURED_USER`, `SECURED_PASSWORD`, `SECURED_TOKEN` (OAUTHBEARER), `SECURED_CA` (a PEM file).
"""
