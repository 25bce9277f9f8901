"""Toy environments of Gymnasium with a cost each, as exact models read from their transition tables."""
