"""The data sets of the catalogue, one a file: pinned files, where they lie, what they become."""
