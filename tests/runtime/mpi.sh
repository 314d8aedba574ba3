#!/usr/bin/env bash
# mpi -- runs mpi_host under one MPI's mpirun.
#
# usage: mpi.sh openmpi|mpich SANITIZER [PROGRAM]     (no PROGRAM: not built)
name=$1 sanitizer=$2 program=${3-}
skip() {
	echo "skipped: $1"
	exit 77
}
[[ -n $program ]] || skip "$name was not found, or this is built with another UCX than it"
command -v "mpirun.$name" >/dev/null || skip "mpirun.$name is not installed"
[[ $sanitizer != *thread* ]] || skip "MPI is not built for ThreadSanitizer"

# More ranks than cores, as root in a container: Open MPI wants to be asked.
options=()
[[ $name != openmpi ]] || options=(--allow-run-as-root --oversubscribe)
# What MPI leaks is not ours to mend.
export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0
for ranks in 2 5; do
	output=$("mpirun.$name" "${options[@]}" -n "$ranks" "$program" 2>&1)
	status=$?
	echo "$output"
	[[ $status -eq 0 && $output == *"$ranks ranks: the same sums as MPI's"* ]] || exit 1
done
