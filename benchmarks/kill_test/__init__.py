"""Faults in Surreal and in other systems: who continues by itself, what is lost, and how long it takes."""
