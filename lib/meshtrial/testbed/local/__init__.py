"""Real processes on this machine: fortio, Envoy and what they need, on loopback addresses of their own.

These are reference data planes, built from Envoy after the architectures of meshes; they are not the meshes.
"""
