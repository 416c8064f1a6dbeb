"""Machines, clusters, images and environments around a test."""
