"""A real Kubernetes cluster of one machine, built from source, for the tests in this folder.

etcd, API server, controllers, scheduler, kubelet, containerd and kube-proxy, all in
their own namespaces (network, mounts, processes): ending the first process ends everything.
"""
