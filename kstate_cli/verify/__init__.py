"""``kstate verify``: reads every row of every store, and says which file is damaged, and how."""
