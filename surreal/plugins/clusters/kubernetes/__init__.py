"""Kubernetes: the manifests of a run, from k8s/ of a clone or of the wheel.

manifest.py  reads the manifests of k8s/, the base or an overlay through kustomize, and makes the edits of a run
redis.py     the Redis of a run, and its secrets
rendering.py all manifests of a run, from a checked configuration
"""
