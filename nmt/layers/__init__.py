"""Building blocks that several families of models share."""
