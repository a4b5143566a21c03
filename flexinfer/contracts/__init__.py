"""What crosses a wire, versioned: events, subjects, CRDs, labels, extender, results."""
