"""One model dialect a file."""
