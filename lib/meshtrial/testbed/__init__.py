"""Where treatments run: real processes on this machine (``local``) or a Kubernetes cluster (``kubernetes``)."""
