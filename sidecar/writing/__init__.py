"""Writing under a slot epoch: its lanes and sequences, the age of records, and the fence that is kept alive."""
