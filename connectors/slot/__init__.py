"""A slot: what reads requests and writes answers, without Flink, which carries it."""
