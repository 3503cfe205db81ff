"""What keeps this repository as it is: programs for those who develop it."""
