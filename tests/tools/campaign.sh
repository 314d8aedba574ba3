#!/usr/bin/env bash
# campaign -- seeds of the simulator, for some operations: random rank counts, networks, sizes, jitter,
# reordering and freezes; right values and equal bits on all ranks, each seed twice with one trace.
#
# usage: campaign.sh RUBATO-SIM FIRST_SEED SEEDS OP...
simulator=$1 first=$2 seeds=$3
shift 3
[[ ${TEST_EFFORT-normal} == short ]] && seeds=$((seeds / 50))
for operation in "$@"; do
	"$simulator" "$operation" --seeds "$seeds" --seed "$first" || exit 1
done
