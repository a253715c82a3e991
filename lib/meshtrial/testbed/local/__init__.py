"""The local backend: fortio, Envoy and helper programs as real processes on loopback addresses of this machine.

Its data planes are reference data planes, built from Envoy after the architectures of meshes; they are not the meshes.
"""
