"""Where a pod may go and where it runs best, with the reasons."""
