"""Spark: started, asked and ended, whatever for. PySpark is imported by what asks it, and by nothing before."""
