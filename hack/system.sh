#!/usr/bin/env bash
# Installs the missing Debian packages that the tests need, as root; else prints the command.
#   libnuma1: vLLM. prometheus: the dashboards' tests. The rest: the cluster of e2e/.
set -euo pipefail
export PATH="$PATH:/usr/sbin:/sbin"

declare -A programs=(
    [prometheus]=prometheus [runc]=runc [nft]=nftables [conntrack]=conntrack [iptables]=iptables
    [ipset]=ipset [buildah]=buildah [mmdebstrap]=mmdebstrap [ip]=iproute2 [nsenter]=util-linux [sysctl]=procps
)
missing=()
for program in "${!programs[@]}"; do
    command -v "$program" >/dev/null || missing+=("${programs[$program]}")
done
ldconfig -p | grep -q libnuma.so.1 || missing+=(libnuma1)
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    printf 'error: missing: %s\n' "${missing[*]}" >&2
    printf '       Debian and Ubuntu: sudo apt-get install --no-install-recommends %s\n' "${missing[*]}" >&2
    exit 1
fi
echo "installing ${missing[*]}"
apt-get -qq update
# RUNLEVEL=1: installing starts no service; the tests start and stop what they need.
RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends "${missing[@]}" >/dev/null
