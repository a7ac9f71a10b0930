"""A report as data, and every form it takes: terminal, JSON, CSV, Markdown, pictures."""
