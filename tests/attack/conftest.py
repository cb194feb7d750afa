"""Runs of real processes, as in the tests of whole runs."""

from tests.e2e.conftest import workplace as workplace
