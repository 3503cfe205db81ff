"""What claims by request cost: Own, Release and DescribeOwners one at a time, and thousands of claims that wait."""
