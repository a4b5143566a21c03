"""The only code that touches the world. Siblings never import each other."""
