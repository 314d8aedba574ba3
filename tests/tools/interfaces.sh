#!/usr/bin/env bash
# interfaces -- two hosts, as network namespaces that this test makes and removes, whose first
# network device is up, has an address, and leads nowhere. Jobs start over the second all the same.
#
# usage: interfaces.sh RUBATO-BENCH
bench=$1
skip() {
	echo "skipped: $1"
	exit 77
}
[[ $(id -u) -eq 0 ]] || skip "network namespaces need root"
command -v ip >/dev/null || skip "ip (iproute2) is not installed"

a=rubato-if-$$-a b=rubato-if-$$-b sink=rubato-if-$$-sink
folder=$(mktemp -d)
cleanup() {
	for host in "$a" "$b" "$sink"; do
		ip netns del "$host" 2>/dev/null
	done
	rm -rf "$folder"
}
trap cleanup EXIT
for host in "$a" "$b" "$sink"; do
	ip netns add "$host" 2>"$folder/why" || skip "$(cat "$folder/why")"
	ip netns exec "$host" true 2>"$folder/why" || skip "$(cat "$folder/why")"
	ip -n "$host" link set lo up
done

# device HOST NAME ADDRESS PEER-HOST PEER-NAME: one end of a pair; the other has no address.
device() {
	ip link add "$2" netns "$1" type veth peer name "$5" netns "$4" 2>"$folder/why" ||
		skip "$(cat "$folder/why")"
	ip -n "$1" addr add "$3" dev "$2"
	ip -n "$1" link set "$2" up
	ip -n "$4" link set "$5" up
}
device "$a" dead0 10.78.1.1/24 "$sink" sink0
device "$b" dead0 10.78.1.2/24 "$sink" sink1
device "$a" good1 10.78.2.1/24 "$b" good1
ip -n "$b" addr add 10.78.2.2/24 dev good1
for host in "$a" "$b"; do # Until a link runs, UCX does not see it.
	for name in dead0 good1; do
		for _ in {1..100}; do
			ip -n "$host" link show "$name" | grep -q 'state UP' && break
			sleep 0.05
		done
	done
done

(umask 077 && head -c 32 /dev/urandom | base64 >"$folder/secret")
# To UCX these are still one machine: without UCX_TLS it would look for shared memory.
export RUBATO_SECRET_FILE=$folder/secret RUBATO_SIZE=2 RUBATO_LOG=info UCX_TLS=tcp,self

# job: rank 0 on host a, rank 1 on host b; their texts in $folder/0 and 1. Fails if one fails.
job() {
	local rank host pids=() bad=0
	for rank in 0 1; do
		host=$a
		[[ $rank -eq 0 ]] || host=$b
		RUBATO_RANK=$rank timeout 90 ip netns exec "$host" "$bench" allreduce -t 3 \
			-b 8 -e 128K -f 128 >"$folder/$rank" 2>&1 &
		pids+=($!)
	done
	wait "${pids[0]}" || bad=1
	wait "${pids[1]}" || bad=1
	return "$bad"
}

# expect WHAT TEXT: some rank has said it.
expect() {
	grep -qF "$2" "$folder/0" "$folder/1" && return
	echo "$1: nobody says '$2':"
	cat "$folder/0" "$folder/1"
	exit 1
}

good() {
	job || { echo "$1 failed:"; cat "$folder/0" "$folder/1"; exit 1; }
	expect "$1" "0 OK"
}

export RUBATO_TIMEOUT=60s
RUBATO_ROOT=10.78.2.1:29778 good "a root behind the good device"
expect "a root behind the good device" "reach this machine: good1"
RUBATO_ROOT=10.78.1.1:29778,10.78.2.1:29778 good "a root whose first address is dead"
RUBATO_INTERFACE=^dead RUBATO_ROOT=10.78.2.1:29778 good "the dead device excluded"
# By name it is used, whether it works or not; which shows that it is dead.
export RUBATO_ROOT=10.78.2.1:29778 RUBATO_TIMEOUT=5s
if RUBATO_INTERFACE=dead0 job; then
	echo "RUBATO_INTERFACE=dead0 went unheeded"
	exit 1
fi
if RUBATO_INTERFACE=eth7 job; then
	echo "RUBATO_INTERFACE=eth7 went unnoticed"
	exit 1
fi
expect "a device that is not there" "RUBATO_INTERFACE=eth7 matches no device; there are"
echo "starts over the device that works"
