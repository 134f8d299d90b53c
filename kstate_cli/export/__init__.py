"""``kstate export``: a whole store as Parquet, its rows decoded, without a change to the application directory."""
