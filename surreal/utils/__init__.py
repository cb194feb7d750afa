"""Small helpers with no place of their own: torch modules, supervised threads."""
