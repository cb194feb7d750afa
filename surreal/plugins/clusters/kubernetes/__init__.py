"""Kubernetes: the manifests of a run, from k8s/ of a clone or of the wheel.

source.py    reads the manifests of k8s/: the base, or an overlay through kustomize
manifest.py  a manifest, and the edits that a run needs
redis.py     the Redis of a run, and its secrets
rendering.py all manifests of a run, from a checked configuration
"""
