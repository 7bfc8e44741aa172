"""Shell text, read as a shell would go through it: words, commands, values; nothing is ever run here."""
