"""One schedule of the learning rate a file: its options, and a pure function of progress."""
