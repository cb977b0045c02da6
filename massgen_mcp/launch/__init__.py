"""Starting the worker of a run, here or detached."""
