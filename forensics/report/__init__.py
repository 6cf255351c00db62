"""A verdict as text for a terminal, Markdown for a ticket, and JSON for a program: pure functions, same verdict, same bytes."""
