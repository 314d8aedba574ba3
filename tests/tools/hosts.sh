#!/usr/bin/env bash
# hosts -- two hosts with two ranks each, as network namespaces that this test makes and removes:
# shared memory within, UCX's TCP between. Every algorithm, every value checked.
#
# usage: hosts.sh RUBATO-BENCH RUBATO-INFO
bench=$1 info=$2
skip() {
	echo "skipped: $1"
	exit 77
}
[[ $(id -u) -eq 0 ]] || skip "network namespaces need root"
command -v ip >/dev/null || skip "ip (iproute2) is not installed"

here=rubato-$$-a there=rubato-$$-b
folder=$(mktemp -d)
cleanup() {
	ip netns del "$here" 2>/dev/null
	ip netns del "$there" 2>/dev/null
	rm -rf "$folder"
}
trap cleanup EXIT
ip netns add "$here" 2>"$folder/why" || skip "$(cat "$folder/why")"
ip netns exec "$here" true 2>"$folder/why" || skip "$(cat "$folder/why")"
ip netns add "$there"
ip link add va netns "$here" type veth peer name vb netns "$there" 2>"$folder/why" ||
	skip "$(cat "$folder/why")"
ip -n "$here" addr add 10.77.0.1/24 dev va
ip -n "$there" addr add 10.77.0.2/24 dev vb
for host in "$here" "$there"; do
	ip -n "$host" link set lo up
done
ip -n "$here" link set va up
ip -n "$there" link set vb up
# Until the link runs, UCX does not see it.
for _ in {1..100}; do
	ip -n "$there" link show vb | grep -q 'state UP' && break
	sleep 0.05
done

(umask 077 && head -c 32 /dev/urandom | base64 >"$folder/secret")
# To UCX these are still one machine: without UCX_TLS it would look for shared memory.
export RUBATO_SECRET_FILE=$folder/secret RUBATO_ROOT=10.77.0.1:29777 RUBATO_SIZE=4
export RUBATO_TIMEOUT=60s UCX_TLS=tcp,self

for operation in allreduce reduce_scatter allgather broadcast reduce alltoall gather scatter \
	allgatherv reduce_scatterv alltoallv barrier sendrecv; do
	pids=()
	for rank in 0 1 2 3; do
		host=$here
		[[ $rank -ge 2 ]] && host=$there
		RUBATO_RANK=$rank ip netns exec "$host" "$bench" "$operation" -t 3 \
			-b 8 -e 128K -f 128 --algorithm all >"$folder/$rank" 2>&1 &
		pids+=($!)
	done
	for rank in 0 1 2 3; do
		if ! wait "${pids[$rank]}"; then
			echo "$operation: rank $rank failed:"
			tail -n 5 "$folder/$rank"
			exit 1
		fi
	done
	grep -q '0 OK' "$folder/0" || { echo "$operation: no row was checked"; exit 1; }
done
# Where ranks are: of one kernel, but with a network each two.
pids=()
for rank in 0 1 2 3; do
	host=$here
	[[ $rank -ge 2 ]] && host=$there
	RUBATO_RANK=$rank ip netns exec "$host" "$info" --topology >"$folder/$rank" 2>&1 &
	pids+=($!)
done
for rank in 0 1 2 3; do
	if ! wait "${pids[$rank]}"; then
		echo "rubato-info: rank $rank failed:"
		cat "$folder/$rank"
		exit 1
	fi
done
for rank in 0 1 2 3; do
	grep -Eq "rank $rank +node $((rank / 2)), host 0, card $((rank / 2)), " "$folder/0" ||
		{ echo "rubato-info does not know where rank $rank is:"; cat "$folder/0"; exit 1; }
done
grep -Eq 'between nodes [0-9.]+ us, [0-9.e-]+ GB/s' "$folder/0" ||
	{ echo "rubato-info tells of no link:"; cat "$folder/0"; exit 1; }
# Hosts' clocks have nothing in common: rank 0's is an hour ahead.
if unshare -T --monotonic 3600 true 2>"$folder/why"; then
	pids=()
	for rank in 0 1; do
		host=$here ahead=(unshare -T --monotonic 3600)
		[[ $rank -eq 0 ]] || host=$there ahead=()
		RUBATO_SIZE=2 RUBATO_RANK=$rank RUBATO_TIMEOUT=15s ip netns exec "$host" \
			timeout 60 "${ahead[@]}" "$bench" partial -t 8 -w 2 -s 8K \
			--policy solo --skew rank:1:1ms >"$folder/$rank" 2>&1 &
		pids+=($!)
	done
	for rank in 0 1; do
		if ! wait "${pids[$rank]}"; then
			echo "partial, with another clock: rank $rank failed:"
			tail -n 5 "$folder/$rank"
			exit 1
		fi
	done
	grep -Eq '^ +solo ' "$folder/0" || { echo "partial: no row"; cat "$folder/0"; exit 1; }
	# One kernel, but two clocks do not tell how long it is from one's begin to another's end.
	for clocks in 1 2; do
		pids=()
		for rank in 0 1; do
			ahead=()
			[[ $rank -eq 1 || $clocks -eq 1 ]] ||
				ahead=(unshare -T --monotonic 3600)
			RUBATO_SIZE=2 RUBATO_RANK=$rank ip netns exec "$here" \
				timeout 60 "${ahead[@]}" "$bench" allreduce -t 3 -b 8 -e 8 \
				--json "$folder/$clocks.json" >"$folder/$rank" 2>&1 &
			pids+=($!)
		done
		for rank in 0 1; do
			wait "${pids[$rank]}" ||
				{ cat "$folder/$rank"; exit 1; }
		done
	done
	grep -Eq '"whole": [0-9]' "$folder/1.json" &&
		grep -q '"whole": null' "$folder/2.json" ||
		{ echo "column whole, of two clocks:"; cat "$folder"/[12].json; exit 1; }
else
	echo "no clocks of their own: $(cat "$folder/why")"
fi
echo "two hosts, four ranks: all values right"
