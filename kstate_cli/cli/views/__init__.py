"""What commands print: tables, reports and progress for people, lines of JSON for programs."""
