"""What moves facts into an extender's fleet view and its decisions out."""
