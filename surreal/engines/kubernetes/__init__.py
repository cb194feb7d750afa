"""Kubernetes: the manifests of a run, from k8s/ of a clone or of the wheel, and the health of its processes."""
