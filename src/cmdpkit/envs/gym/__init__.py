"""Toy environments of Gymnasium, each with a cost, as exact models that are read from their transition tables."""
