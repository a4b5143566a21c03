"""What is measured, how it is summarised, and the identity of a result."""
