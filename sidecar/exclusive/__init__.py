"""Who may write to a governed topic: sessions, claims, change of owner, failover. Pure cores decide, shells act."""
