"""Reading a lake without a JVM, and serving what is read."""
