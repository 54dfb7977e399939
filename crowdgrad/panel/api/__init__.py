"""The panel's routes, by what they are about: each module adds its own to the app."""
