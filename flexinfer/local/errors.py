"""What goes wrong in one-machine mode in a way a person can mend."""


class UserError(Exception):
    """One sentence that says what to do; shown without a stack, exit code 1."""
