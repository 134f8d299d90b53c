"""Commands that meet each other, or real Kafka Streams, on one directory: ``python -m tests.races --help``."""
