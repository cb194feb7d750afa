"""Kubernetes: the manifests of a run, from k8s/ of a clone or of the wheel.

source.py    the manifests as they lie in k8s/: the base, or an overlay by way of kustomize
manifest.py  a manifest, and the edits that a run needs
rendering.py all manifests of a run, from a checked configuration
secrets.py   fresh passwords of a run, as Secrets
"""
