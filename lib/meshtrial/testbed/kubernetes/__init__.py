"""The Kubernetes backend: real meshes on any cluster that a kubeconfig reaches."""
