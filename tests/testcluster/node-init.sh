#!/bin/bash
# The first process of a node's pid namespace: gives the node folders of its own where every node expects the same path,
# then runs containerd, kubelet and kube-proxy. Killing it ends everything that the node ever started.
# Usage: node-init.sh NODE ADDRESS NODE_FOLDER BIN_FOLDER LOG_FOLDER PLUGIN_FOLDER HOUSEKEEPING ARCHIVE... -- ARCHIVE...
# The archives before the -- are imported before the kubelet starts, those after it meanwhile.
set -euo pipefail

node=$1 address=$2 folder=$3 bin=$4 logs=$5 plugins=$6 housekeeping=$7
shift 7

mount --make-rprivate /
mount -t proc proc /proc

# Everything that a node keeps under /run, sockets of mesh agents included, is its own and leaves no trace on the machine.
mount -t tmpfs -o mode=0755 tmpfs /run
mkdir -p /run/containerd /run/netns /run/istio-cni /run/ztunnel

# NAME in the node's folder becomes PATH inside the node. The mount points exist: whoever starts nodes makes them.
private() {
  mkdir -p "$folder/$1"
  mount --bind "$folder/$1" "$2"
}
private containerd /var/lib/containerd
private kubelet /var/lib/kubelet
private cni-state /var/lib/cni
private pod-logs /var/log/pods
private container-logs /var/log/containers
private cni-config /etc/cni/net.d
# A copy, for meshes install a plugin of their own here.
mkdir -p "$folder/cni-plugins"
cp -a "$plugins/." "$folder/cni-plugins/"
private cni-plugins /opt/cni/bin
mount --make-rshared /
hostname "$node"

echo 1 > /proc/sys/net/ipv4/ip_forward
if [[ -e /proc/sys/net/bridge/bridge-nf-call-iptables ]]; then
  echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables
fi

# Like a service manager: a daemon that ends is started again, and its log says so.
keep() {
  local name=$1
  shift
  while :; do
    "$@" >> "$logs/$name-$node.log" 2>&1 || echo "node-init: $name ended with $?; starting it again" >> "$logs/$name-$node.log"
    sleep 1
  done
}

import() {
  local archive
  for archive in "$@"; do
    ctr --namespace k8s.io images import "$archive" >> "$logs/import-$node.log" 2>&1 ||
      echo "$archive: $(tail -n 1 "$logs/import-$node.log")" >> "$folder/import-failed"
  done
}

keep containerd containerd --config "$folder/containerd.toml" &
for ((i = 0; i < 300; i++)); do
  if ctr version > /dev/null 2>&1; then break; fi
  sleep 0.1
done

first=()
while [[ $# -gt 0 && $1 != -- ]]; do
  first+=("$1")
  shift
done
[[ $# -eq 0 ]] || shift
import "${first[@]}"

keep kubelet "$bin/kubelet" --config="$folder/kubelet.json" --kubeconfig="$folder/kubelet.kubeconfig" \
  --hostname-override="$node" --node-ip="$address" --root-dir=/var/lib/kubelet --cert-dir="$folder/kubelet-pki" \
  --node-labels="role=worker,slot=$node" --housekeeping-interval="$housekeeping" &
keep kube-proxy "$bin/kube-proxy" --config="$folder/kube-proxy.json" &

import "$@"
touch "$folder/imported"
wait
