"""Kafka's own command line tools, unmodified, run many to a JVM: see `java/matrix/tools/Host.java`."""
