"""What each code that kstate prints means, and what to do: findings, problems, states, failures, exit codes."""
