"""The commands: thin files over the library, one a command, and the launcher that they share."""
