"""kstate: operations on Kafka Streams state directories while the application is stopped."""

__version__ = "0.1.0"
