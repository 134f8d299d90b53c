"""Real Kafka Streams as the judge: releases from Maven Central against a private one-node broker on 127.0.0.1."""
