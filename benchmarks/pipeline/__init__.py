"""What the jobs on Spark cost: records per second of audit and rebuild, and export beside Spark's bare copy."""
